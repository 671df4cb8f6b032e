#!/usr/bin/env bash
# Measures routing policies in time: for each policy and load it sends the same traffic
# through real Envoy to four simulated replicas, and prints the times beside those of the
# simulation, in Markdown. It fails if a request fails, if the machine is more than half
# busy, or if the order differs from the simulation's. It takes livepolicy's arguments.
# Then it does the same for sessions that are held: what holding gains must be the simulator's
# within 15 %.
set -euo pipefail
cd "$(dirname "$0")/.."
go -C lab build -o ../bin/ ./bench/livepolicy
bin/livepolicy "$@"
cd test
exec go test -count=1 -timeout 10m -run '^TestHoldingPastTheCliff$' -v ./e2e -hold-span 100s
