#!/usr/bin/env bash
# The suite of `make test`: vet, unit and golden tests, the race detector where
# goroutines meet, real Envoy end to end. `test.sh long` is what .ci/run adds:
# everything that test.sh runs with the race detector without it, and the
# reverse, so that allocation tests and long forms run, and nothing stays
# unwatched. Where COVERAGE names a folder, the runs without the race detector
# leave coverage profiles in it, for coverage.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
step() { printf '== %s (%ss)\n' "$1" "$SECONDS"; }

# Packages that start no goroutine: the race detector would only make their
# golden vectors and differential tests five to ten times slower. Those of them
# that several goroutines may call show it in tests of their own (shared). The
# end-to-end suites run here as well: the router they start is built with the
# race detector, only the test's own client is not. Every other package, also a
# new one, gets the race detector.
plain='internal/(chat|cli|jinja|openai|pyvalue|simulator|tokens)(/.*)?|internal/tokenizer(/(onig|ucd))?|test/(e2e|failopen|layout|oracle)|bench/.*'
shared='./internal/chat ./internal/jinja ./internal/tokenizer ./internal/tokens'
sharedTests='Concurrent|Shared|Remote|Local'

all=$(go list ./...)
quick=$(grep -E "^warmroute/($plain)$" <<<"$all")
raced=$(grep -vE "^warmroute/($plain)$" <<<"$all")
quick="warmroute/test/e2e $(grep -v '/test/e2e$' <<<"$quick")" # the longest first
profile() { [ -z "${COVERAGE:-}" ] || echo "-coverprofile=$COVERAGE/$1.out"; }
counting() { # the packages of $raced that count allocations, which nobody can under the race detector
  # shellcheck disable=SC2086
  go list -f '{{.ImportPath}} {{.Dir}}' $raced | while read -r path dir; do
    if grep -qs '^func Test[A-Za-z0-9_]*Alloc' "$dir"/*_test.go; then echo "$path"; fi
  done
}
run() { go test -timeout 20m "$@" | grep -v '\[no test files\]'; }

case ${1:-} in
long)
  step "with the race detector: what make test runs without it"
  # shellcheck disable=SC2086
  run -race $(tr ' ' '\n' <<<"$quick" | grep -vE '/(e2e|failopen)$')
  step "without the race detector: allocations, and forms that are too long for it"
  # shellcheck disable=SC2046,SC2086
  run $(profile long) $raced
  ;;
"")
  step "go vet, while setup installs what is missing"
  scripts/setup.sh &
  setup=$!
  trap wait EXIT # nothing is left half installed
  go vet ./...
  wait "$setup"
  step "with the race detector: $(wc -w <<<"$raced") packages in which goroutines meet"
  # shellcheck disable=SC2086
  run -race $raced
  # shellcheck disable=SC2086
  run -race -run "$sharedTests" $shared
  step "real Envoy end to end, golden vectors, Python references: $(wc -w <<<"$quick") packages"
  # shellcheck disable=SC2046,SC2086
  run $(profile quick) $quick
  step "the compose example, in a module of its own"
  (cd test/compose && run -count=1 ./...)
  step "allocations on the hot paths"
  # shellcheck disable=SC2046
  run -run Alloc $(counting)
  printf '== test: passed in %ss: %s packages vetted and tested, %s of them under the race detector; routed through real Envoy %s; rendered and tokenized as Jinja2 and Hugging Face do\n' \
    "$SECONDS" "$(wc -w <<<"$all")" "$(wc -w <<<"$raced")" "$("$(scripts/install-envoy.sh)" --version | grep -oE '/[0-9.]+/' | tr -d /)"
  ;;
*)
  echo "test.sh: $1 is not a form of the suite; there is long" >&2
  exit 2
  ;;
esac
