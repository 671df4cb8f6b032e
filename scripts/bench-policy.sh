#!/usr/bin/env bash
# Judges routing policies by simulation: `extproc policy`, the real decision
# code, beside the published policies, on the traces named as arguments (paths,
# Mooncake format) or else on a seeded synthetic one. Prints Markdown.
set -euo pipefail
cd "$(dirname "$0")/.."
traces=$(IFS=,; echo "${*:-seeded}")
go build -o bin/ ./cmd/extproc ./bench/polsim
if [[ -n ${ROUTERS:-} ]]; then # several routers of one fleet beside one, by the delay of what they tell each other
	exec nice bin/polsim -traces "$traces" -replicas 16 -loads 0.8,0.95 -routers "$ROUTERS" -jobs "$(nproc)"
fi
exec nice bin/polsim -router "bin/extproc policy" -traces "$traces" -jobs "$(nproc)"
