#!/usr/bin/env bash
# Installs llama.cpp's server, as PyPI's xllamacpp has it prebuilt, into .cache, and prints
# the path of its Python: test/e2e routes to it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=2026.10.11549
dir=$PWD/.cache/llamacpp-$version
if [ ! -f "$dir/ok" ]; then
  rm -rf "$dir"
  python3 -m venv "$dir"
  "$dir/bin/pip" install -q --disable-pip-version-check --require-hashes -r scripts/requirements/llamacpp.txt >&2
  touch "$dir/ok"
fi
echo "$dir/bin/python"
