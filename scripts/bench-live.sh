#!/usr/bin/env bash
# Measures routing policies in time: for each policy and load it sends the same traffic
# through real Envoy to four simulated replicas, and prints the times beside those of the
# simulation, in Markdown. It fails if a request fails, if the machine is more than half
# busy, or if the order differs from the simulation's. It takes livepolicy's arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
go -C lab build -o ../bin/ ./bench/livepolicy
exec bin/livepolicy "$@"
