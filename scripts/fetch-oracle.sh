#!/usr/bin/env bash
# Installs the Python reference implementations for differential tests into the virtual
# environment .cache/oracle.
set -euo pipefail
cd "$(dirname "$0")/.."
pins=scripts/requirements/oracle.txt
want=$(grep -E '^(tokenizers|jinja2)==' "$pins" | cut -d' ' -f1 | sort -r | paste -sd' ')
dir=.cache/oracle
[ "$(cat "$dir/installed" 2>/dev/null)" = "$want" ] && exit 0
rm -rf "$dir"
python3 -m venv "$dir" || { echo "fetch-oracle: python3-venv is missing" >&2; exit 1; }
"$dir/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$pins"
echo "$want" >"$dir/installed"
