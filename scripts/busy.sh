#!/usr/bin/env bash
# busy.sh N COMMAND…: runs a command beside N processes that keep the cores busy, to show
# that a test holds on a machine with other work. It exits with the command's code and
# ends the busy processes.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: busy.sh N COMMAND…" >&2; exit 2; }
n=$1
shift
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for _ in $(seq "$n"); do
  while :; do :; done &
  busy+=($!)
done
"$@"
