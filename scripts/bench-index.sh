#!/usr/bin/env bash
# The index beside kv-index 2.0.0 on the same operations, alternating, medians and
# ratios at the end. Usage: bench-index.sh [trace.jsonl]
# ROUNDS (5) and REPLICAS ("8 64 512") may be set. Needs cargo.
set -euo pipefail
cd "$(dirname "$0")/.."
trace=${1:-}
rounds=${ROUNDS:-5}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go build -o "$work/indexbench" ./bench/cmd/indexbench
cargo build --quiet --release --manifest-path bench/peers/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-bench/peers/target}"
peers=${CARGO_TARGET_DIR:-bench/peers/target}/release/peers
args=()
if [ -n "$trace" ]; then args+=(-trace "$trace"); fi
for r in ${REPLICAS:-8 64 512}; do
  "$work/indexbench" "${args[@]}" -r "$r" -out "$work"
  for i in $(seq "$rounds"); do
    echo "round $i of $rounds, $r replicas" >&2
    "$peers" "$work/ops-$r.bin" >>"$work/results"
    "$work/indexbench" "${args[@]}" -r "$r" -quick >>"$work/results"
  done
  "$peers" "$work/ops-$r.bin" full | grep events >>"$work/results"
  "$work/indexbench" "${args[@]}" -r "$r" | grep -v replay: | tee -a "$work/results"
  rm -f "$work/ops-$r.bin"
done
for i in $(seq "$rounds"); do
  "$peers" growth >>"$work/results"
  "$work/indexbench" -growth -r "" >>"$work/results"
done
"$work/indexbench" -compare "$work/results"
