#!/usr/bin/env bash
# What warmroute costs beside a no-op ext_proc server, in the same minutes: tables
# in Markdown. Usage: bench-extproc.sh [flags of extprocbench cost]
# PROFILES=DIR keeps CPU profiles of every row. About seven minutes.
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
"$work/extprocbench" routers -extproc "$work/extproc" -model .cache/models/qwen3
