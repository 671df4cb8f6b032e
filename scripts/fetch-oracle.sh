#!/usr/bin/env bash
# Installs the Python reference implementations that differential tests compare
# with into the virtual environment .cache/oracle.
set -euo pipefail
cd "$(dirname "$0")/.."
want="tokenizers==0.23.3 jinja2==3.1.6"
dir=.cache/oracle
[ "$(cat "$dir/installed" 2>/dev/null)" = "$want" ] && exit 0
rm -rf "$dir"
python3 -m venv "$dir" || { echo "fetch-oracle: python3-venv is missing" >&2; exit 1; }
# shellcheck disable=SC2086
"$dir/bin/pip" install -q --disable-pip-version-check $want
echo "$want" >"$dir/installed"
