#!/usr/bin/env bash
# Takes the first steps of a fresh machine on a copy of the sources, with an empty home
# folder: it resolves every import with an empty module cache, then builds and runs the tests
# that call `go`. Those compile from the usual caches, for go.sum holds both module caches to
# the same bytes. The module proxy stays as configured.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/modules.sh
settings=(GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOCACHE GOMODCACHE GOFLAGS)
for name in "${settings[@]}"; do export "$name=$(go env "$name")"; done # they may stand in the home folder
# In the same folder each time, so that only what has changed is compiled again.
fresh=${TMPDIR:-/tmp}/warmroute-fresh-$(cksum <<<"$PWD" | cut -d' ' -f1)
mkdir -p .cache
exec 8>.cache/fresh.lock
flock 8
clean() { chmod -Rf u+w "$fresh" || true; rm -rf "$fresh"; }
trap clean EXIT
clean
mkdir -p "$fresh/.fresh-home"
git ls-files -z | xargs -0 cp --parents -t "$fresh" 2>/dev/null || true # git lists a file that is deleted but not committed, and cp cannot copy it
export HOME=$fresh/.fresh-home XDG_CONFIG_HOME=
cd "$fresh"
step() { printf '== fresh: %s (%ss)\n' "$1" "$SECONDS"; }
step "modules"
fetched=$fresh/.fresh-modules
for module in "${modules[@]}"; do GOMODCACHE=$fetched go -C "$module" list -deps -test ./... >/dev/null; done
step "build"
go build -o "$fresh/.fresh-bin/" ./cmd/...
go -C lab build -o "$fresh/.fresh-bin/" ./cmd/lab ./cmd/vllmsim
step "the tests that call go"
go test -vet=off -count=1 ./cmd/kvsub
go -C test test -vet=off -count=1 ./layout
step "passed: $(find "$fetched/cache/download" -name '*.zip' | wc -l) modules fetched, $(ls "$fresh/.fresh-bin" | wc -l) binaries built"
