#!/usr/bin/env bash
# Installs the tools and files of the tests and the demo into .cache, once. It skips the
# parts that are there already, and fetches the others side by side.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in go python3 npm; do
  command -v "$tool" >/dev/null || { echo "setup: $tool is missing; install it and run again" >&2; exit 1; }
done
mkdir -p .cache
exec 8>.cache/setup.lock
flock 8 # if two run at once, the second finds every part installed
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
