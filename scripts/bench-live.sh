#!/usr/bin/env bash
# Routing policies in time: the same traffic through real Envoy to four simulated
# replicas, for each policy and load, beside what the simulation says of it.
# Prints Markdown; fails where a request did, where the machine was more than half
# busy, or where the order differs from the simulation's. Arguments are livepolicy's.
set -euo pipefail
cd "$(dirname "$0")/.."
go -C lab build -o ../bin/ ./bench/livepolicy
exec bin/livepolicy "$@"
