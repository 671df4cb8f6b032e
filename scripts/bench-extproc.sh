#!/usr/bin/env bash
# Measures the CPU and delay of warmroute and of a no-op ext_proc server in the same
# minutes, and prints tables in Markdown. It takes about seven minutes.
#   bench-extproc.sh [flags of extprocbench cost]
# PROFILES=DIR keeps CPU profiles of every row.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/fetch-models.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CGO_ENABLED=0
go build -trimpath -o "$work" ./cmd/extproc
go -C lab build -trimpath -o "$work" ./bench/extprocbench
args=(-extproc "$work/extproc" -model .cache/models/qwen3)
if [ -n "${PROFILES:-}" ]; then
  mkdir -p "$PROFILES"
  args+=(-profiles "$(cd "$PROFILES" && pwd)")
fi
echo "$(nproc) CPUs ($(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1)), load $(cut -d' ' -f1-3 /proc/loadavg), $(go env GOVERSION)"
echo
"$work/extprocbench" cost "${args[@]}" "$@"
"$work/extprocbench" several
"$work/extprocbench" usage
"$work/extprocbench" split -extproc "$work/extproc" -model .cache/models/qwen3
"$work/extprocbench" routers -extproc "$work/extproc" -model .cache/models/qwen3
