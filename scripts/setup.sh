#!/usr/bin/env bash
# Installs what the tests and the demo need into .cache, once. Every part is
# skipped when it is there already.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in go python3 npm; do
  command -v "$tool" >/dev/null || { echo "setup: $tool is missing; install it and run again" >&2; exit 1; }
done
for part in scripts/install-envoy.sh scripts/fetch-*.sh; do
  name=${part##*/*-}
  echo "setup: ${name%.sh} (${SECONDS}s)"
  "$part" >/dev/null
done
