#!/usr/bin/env bash
# fuzz.sh DURATION: runs every fuzz target of the modules for DURATION, one after the
# other.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
found=0
while IFS=: read -r file name; do
  found=$((found + 1))
  echo "== $name in ./$(dirname "$file")"
  go -C "$(dirname "$file")" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 1x .
done < <(grep -rHoE "^func Fuzz[A-Za-z0-9_]+" --include="*_test.go" . | sed -E "s/^\.\///; s/func //")
[ "$found" -gt 0 ] || { echo "fuzz: no targets found" >&2; exit 1; }
