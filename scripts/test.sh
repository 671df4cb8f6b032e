#!/usr/bin/env bash
# Runs the suite of `make test`: unit and golden tests, the race detector where goroutines
# meet, real Envoy end to end. `make lint` vets the code. `test.sh waiting` is the part of it
# that waits more than it computes, and runs beside the rest. `test.sh long` is a part of
# .ci/run: it runs with the race detector the commands that start goroutines, and without it
# the packages whose tests do more then: they count allocations, or have forms that are too
# long for it.
# With COVERAGE, a folder, the runs of `make test` write profiles for coverage.sh into it, for
# which the tests compute up to twice as long.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/modules.sh
step() { printf '== %s (%ss)\n' "$1" "$SECONDS"; }

# The race detector would only make the golden vectors and differential tests of these
# packages five to ten times slower: they start no goroutine. Packages among them that
# several goroutines may call have tests of their own for that (shared), which have one of
# sharedTests in their names. The end-to-end suite runs here as well: it builds its router
# with the race detector, and only the test's own client has none. Every other package, also
# a new one, gets the race detector.
single='render(/openai|/internal/(chat|jinja|jsontext|onig|prefixcache|pyvalue|tokenizer|ucd))?|prefixhash|index(/internal/(epoch|hashtable|holderset|hybrid|radix|spans))?|internal/(cli/predict|decision(/history)?|sessions)|lab/(simulator(/.*)?|cli/(agents|replay))|test/(e2e|layout|supply)'
shared='warmroute/(index(/internal/(expiry|hashtable))?|internal/(decision|tokens)|render(/internal/(chat|jinja|tokenizer))?)'
sharedTests='Concurrent|Goroutines|Shared|Remote|Local|Readers|Reading|Regrown|AtOnce|RunSweeps|Race'

# The race detector watches the commands, whose goroutines share little, in the long form
# only.
commands='internal/(cli|tokens)(/.*)?|lab/(bench|cli|cmd/lab)(/.*)?'

all=$(for module in "${modules[@]}"; do packages "$module"; done | grep -vE '^warmroute/test/(hostile|failopen)$') # make test-hostile and test-failopen run them
quick=$(grep -E "^warmroute/($single|$commands)$" <<<"$all")
raced=$(grep -vE "^warmroute/($single|$commands)$" <<<"$all")
of() { # module packages: prints the module's packages among them
  if [ "$1" = . ]; then grep -vE '^warmroute/(render|lab|test)(/|$)' <<<"$2"; else grep -E "^warmroute/$1(/|$)" <<<"$2"; fi
}
profile() { # run module: prints the flag
  [ -z "${COVERAGE:-}" ] || echo "-coverprofile=$COVERAGE/$1-${2/./root}.out"
}
differing() { # prints the packages whose tests ask whether they run with the race detector
  git grep -lE 'testkit/race"|^//go:build.*!race' -- '*_test.go' | sed 's|^|warmroute/|; s|/[^/]*$||' | sort -u
}
took=() # "module seconds" of each run
tests() { # module packages flags…: runs a module's tests
  local module=$1 list=$2 began=$SECONDS
  shift 2
  [ -n "$list" ] || return 0
  # shellcheck disable=SC2086
  go -C "$module" test -vet=off -timeout 60m "$@" $list | grep -v '\[no test files\]'
  took+=("$module $((SECONDS - began))")
}
times() { # prints the seconds of each module's tests
  printf '%s\n' "${took[@]}" | awk '{ s[$1] += $2 } END { for (m in s) printf "== module %s: %ss\n", m == "." ? "warmroute" : "warmroute/" m, s[m] }' | sort
}

case ${1:-} in
waiting)
  step "real Envoy end to end"
  # shellcheck disable=SC2046
  tests test "$(of test "$quick")" -parallel 4 $(profile quick test)
  step "what must not fail when a router breaks, and several routers: a part of make test-failopen"
  tests test warmroute/test/failopen -run 'NothingFails$|Routers$'
  times
  ;;
long)
  step "with the race detector: the commands"
  for module in "${modules[@]}"; do
    tests "$module" "$(of "$module" "$quick" | grep -vE "^warmroute/($single)\$" || true)" -race
  done
  step "without the race detector: allocations, and forms that are too long for it"
  for module in "${modules[@]}"; do
    tests "$module" "$(of "$module" "$raced" | grep -xFf <(differing) || true)"
  done
  times
  ;;
"")
  step "compiling, while setup installs what is missing"
  scripts/setup.sh &
  setup=$!
  trap wait EXIT # setup completes its installations even if a step fails
  go list -race -export -deps ./... >/dev/null
  wait "$setup"
  waiting=$(mktemp)
  set -m # gives it a process group of its own, so that one signal ends it
  "$PWD/scripts/test.sh" waiting >"$waiting" 2>&1 &
  group=$!
  set +m
  trap 'kill -TERM -- "-$group" 2>/dev/null || true; wait || true; rm -f "$waiting"' EXIT
  step "with the race detector: $(wc -w <<<"$raced") packages in which goroutines meet"
  for module in "${modules[@]}"; do
    # shellcheck disable=SC2046
    tests "$module" "$(of "$module" "$raced" || true)" -race $(profile raced "$module")
    tests "$module" "$(of "$module" "$quick" | grep -E "^$shared$" || true)" -race -run "$sharedTests"
  done
  step "golden vectors, Python references"
  for module in . render lab; do
    # shellcheck disable=SC2046
    tests "$module" "$(of "$module" "$quick" || true)" -parallel 4 $(profile quick "$module")
  done
  step "the compose example, in a module of its own"
  tests test/compose ./... -count=1 -vet=all
  times
  step "what ran beside them"
  code=0
  wait "$group" || code=$?
  cat "$waiting"
  [ "$code" -eq 0 ] || exit "$code"
  printf '== test: passed in %ss: %s packages tested, %s of them under the race detector; routed through real Envoy %s; rendered and tokenized as Jinja2 and Hugging Face do\n' \
    "$SECONDS" "$(wc -w <<<"$all")" "$(wc -w <<<"$raced")" "$("$(scripts/install-envoy.sh)" --version | grep -oE '/[0-9.]+/' | tr -d /)"
  ;;
*)
  echo "test.sh: $1 is not a form of the suite; there are waiting and long" >&2
  exit 2
  ;;
esac
