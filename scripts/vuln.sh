#!/usr/bin/env bash
# Known vulnerabilities in what the module calls, by govulncheck and the Go
# vulnerability database: $VULNDB, e.g. file:///folder of a copy, or
# https://vuln.go.dev. Ends with 0: none; 3: found; 75: not checked, the database
# cannot be reached; anything else: govulncheck itself failed.
set -euo pipefail
cd "$(dirname "$0")/.."
tool=golang.org/x/vuln/cmd/govulncheck@v1.8.0
db=${VULNDB:-https://vuln.go.dev}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN=$bin go install "$tool" # `go run` would turn every exit code into 1
code=0
"$bin/govulncheck" -db "$db" -tags kube ./... 2>"$bin/errors" || code=$?
cat "$bin/errors" >&2
if [ "$code" -eq 1 ] && grep -q "fetching vulnerabilities" "$bin/errors"; then
  echo "vuln: NOT CHECKED: the vulnerability database $db cannot be reached from here; VULNDB may name a copy of it" >&2
  exit 75
fi
exit "$code"
