#!/usr/bin/env bash
# Installs what the tests and the demo need into .cache, once. Every part is
# skipped when it is there already; those that are not are fetched side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in go python3 npm; do
  command -v "$tool" >/dev/null || { echo "setup: $tool is missing; install it and run again" >&2; exit 1; }
done
mkdir -p .cache
exec 8>.cache/setup.lock
flock 8 # of two that run at once the second finds everything there
parts=()
for part in scripts/install-envoy.sh scripts/fetch-*.sh; do
  name=${part##*/*-}
  ("$part" >/dev/null && echo "setup: ${name%.sh} (${SECONDS}s)") &
  parts+=($!)
done
failed=0
for part in "${parts[@]}"; do
  wait "$part" || failed=1
done
exit "$failed"
