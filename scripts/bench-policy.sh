#!/usr/bin/env bash
# Judges routing policies by simulation: `lab policy`, the real decision code, beside the
# published policies. Arguments name traces (paths, Mooncake format); without one it uses
# a seeded synthetic trace. ROUTERS=2,4,8 compares several routers with one. ENGINE=gemma3
# or qwen3-next gives replicas several KV cache groups, and compares this router with one
# that follows full attention alone. GOODPUT=1 compares rules for computing prompts on other
# replicas than those that answer. SOURCES=events,history,text compares routers that know caches from
# events, and from the token ids or the text of what they sent, alone. TIERS=1 compares the prices of blocks below the
# GPU with constants. It prints Markdown.
set -euo pipefail
cd "$(dirname "$0")/.."
traces=$(IFS=,; echo "${*:-seeded}")
go -C lab build -o ../bin/ ./cmd/lab ./bench/polsim
if [[ -n ${ROUTERS:-} ]]; then # compares several routers of one fleet with one, by the delay of their messages to each other
	exec nice bin/polsim -traces "$traces" -replicas 16 -loads 0.8,0.95 -routers "$ROUTERS" -jobs "$(nproc)"
fi
if [[ -n ${ENGINE:-} ]]; then
	exec nice bin/polsim -traces "$traces" -replicas 16 -loads 0.8,0.95 -engine "$ENGINE" -policies p2c,full-attention,warmroute -jobs "$(nproc)"
fi
if [[ -n ${TIERS:-} ]]; then
	exec nice bin/polsim -traces "$traces" -replicas 8 -loads 0.8,0.95 -seeds 5 -tiers 2,5,25,55 -jobs "$(nproc)"
fi
if [[ -n ${GOODPUT:-} ]]; then
	exec nice bin/polsim -traces "$traces,prefill" -replicas 8,16,32 -loads 0.5,0.8,0.95 -requests 3000 -seeds 2 -tpot 0.025,0.05,0.1 -jobs "$(nproc)"
fi
if [[ -z ${SOURCES:-} ]]; then
	nice bin/polsim -router "bin/lab policy" -traces "$traces" -jobs "$(nproc)"
	echo
fi
exec nice bin/polsim -sources "${SOURCES:-events,history,text}" -traces "$traces" -loads 0.8,0.95 -seeds 2 -jobs "$(nproc)"
