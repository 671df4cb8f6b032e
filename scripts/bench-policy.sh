#!/usr/bin/env bash
# Judges routing policies by simulation: `lab policy`, the real decision
# code, beside the published policies, on the traces named as arguments (paths,
# Mooncake format) or else on a seeded synthetic one. ROUTERS=2,4,8 compares several
# routers with one; ENGINE=gemma3 or qwen3-next has replicas with several KV cache
# groups, and this router beside one that follows full attention alone. Prints Markdown.
set -euo pipefail
cd "$(dirname "$0")/.."
traces=$(IFS=,; echo "${*:-seeded}")
go -C lab build -o ../bin/ ./cmd/lab ./bench/polsim
if [[ -n ${ROUTERS:-} ]]; then # several routers of one fleet beside one, by the delay of what they tell each other
	exec nice bin/polsim -traces "$traces" -replicas 16 -loads 0.8,0.95 -routers "$ROUTERS" -jobs "$(nproc)"
fi
if [[ -n ${ENGINE:-} ]]; then
	exec nice bin/polsim -traces "$traces" -replicas 16 -loads 0.8,0.95 -engine "$ENGINE" -policies p2c,full-attention,warmroute -jobs "$(nproc)"
fi
exec nice bin/polsim -router "bin/lab policy" -traces "$traces" -jobs "$(nproc)"
