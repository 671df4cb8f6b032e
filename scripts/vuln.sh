#!/usr/bin/env bash
# vuln.sh [FOLDER...]: finds known vulnerabilities in the functions that the modules in
# the folders call (without a folder: all modules of this repository). It runs govulncheck
# with the Go vulnerability database: $VULNDB, e.g. file:///folder of a copy, or
# https://vuln.go.dev. It exits with 0 if it finds none, with 3 if it finds some, and with
# 75 if it cannot read the database and checks nothing; other codes mean that the check
# itself failed. First it shows on a sample with a database of its own that govulncheck
# reads databases.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.8.0
tool=$PWD/.cache/govulncheck-$version
db=${VULNDB:-https://vuln.go.dev}
own=file://$PWD/scripts/testdata/vuln/db
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [ ! -x "$tool/govulncheck" ]; then # `go run` would turn every exit code into 1
  GOBIN=$tool go install "golang.org/x/vuln/cmd/govulncheck@$version"
fi

check() { # database folder [govulncheck's flags]
  (cd "$2" && "$tool/govulncheck" -db "$1" "${@:3}" ./...)
}
dated() { # database: prints the time of its last change, "" if govulncheck cannot read it
  check "$1" scripts/testdata/vuln/clean -format json 2>"$scratch/errors" | sed -n 's/.*"db_last_modified": "\(.*\)".*/\1/p'
}

code=0
check "$own" scripts/testdata/vuln/sample >"$scratch/sample" 2>&1 || code=$?
if [ "$code" -ne 3 ] || ! grep -q GO-0000-0001 "$scratch/sample"; then
  cat "$scratch/sample" >&2
  echo "vuln: FAILED: the vulnerability of the sample was not found: govulncheck reads no databases" >&2
  exit 1
fi
date=$(dated "$db" || true)
if [ -z "$date" ]; then
  cat "$scratch/errors" >&2
  echo "vuln: NOT CHECKED: the vulnerability database $db cannot be read from here; VULNDB may name a copy of it" >&2
  exit 75
fi
echo "vuln: the database $db was changed last at $date"
folders=("$@")
[ $# -gt 0 ] || mapfile -t folders < <(git ls-files 'go.mod' '*/go.mod' | grep -v testdata | xargs -n1 dirname)
found=0
for folder in "${folders[@]}"; do
  echo "vuln: $folder"
  code=0
  check "$db" "$folder" -tags kube || code=$?
  case $code in
  0) ;;
  3) found=3 ;;
  *) exit "$code" ;;
  esac
done
exit "$found"
