#!/usr/bin/env bash
# Takes the first steps of a fresh machine: it resolves every import, builds, and runs the
# tests that call `go`, on a copy of the sources. The module cache, the build cache and the home folder are empty, in
# a temporary folder. The module proxy stays as configured.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/modules.sh
export GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY
eval "$(go env GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY GOFLAGS | awk 'BEGIN{split("GOPROXY GOSUMDB GONOSUMDB GOPRIVATE GONOPROXY flags",n," ")} {printf "%s='\''%s'\''\n", n[NR], $0}')"
fresh=$(mktemp -d)
trap 'chmod -R u+w "$fresh"; rm -rf "$fresh"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$fresh" 2>/dev/null || true # git lists a file that is deleted but not committed, and cp cannot copy it
mkdir "$fresh/.fresh-home"
export HOME=$fresh/.fresh-home GOMODCACHE=$fresh/.fresh-modules GOCACHE=$fresh/.fresh-cache GOFLAGS=$flags XDG_CONFIG_HOME=
cd "$fresh"
step() { printf '== fresh: %s (%ss)\n' "$1" "$SECONDS"; }
step "modules"
for module in "${modules[@]}"; do go -C "$module" list -deps -test ./... >/dev/null; done
step "build"
go build -o "$fresh/.fresh-bin/" ./cmd/...
go -C lab build -o "$fresh/.fresh-bin/" ./cmd/lab ./cmd/vllmsim
step "the tests that call go"
go test -vet=off -count=1 ./cmd/kvsub
go -C test test -vet=off -count=1 ./layout
step "passed: $(find "$GOMODCACHE/cache/download" -name '*.zip' | wc -l) modules fetched, $(ls "$fresh/.fresh-bin" | wc -l) binaries built"
