#!/usr/bin/env bash
# Compares the index with kv-index 2.0.0 on the same operations in alternation, and prints
# medians and ratios at the end. It takes about five minutes on two idle cores and needs
# cargo.
#   bench-index.sh [trace.jsonl]
# QUICK=1 runs one round with 8 replicas in ten seconds. These variables divide a run into
# pieces: ROUNDS (5), REPLICAS ("8 64 512"), GROWTH (1 = with chain length and replicas),
# and RESULTS, a file to which each piece appends and which the script compares as a
# whole. At the end indexbench -groups compares lookups among holders with several cache
# groups with lookups among dense ones.
set -euo pipefail
cd "$(dirname "$0")/.."
trace=${1:-}
if [ -n "${QUICK:-}" ]; then
  rounds=${ROUNDS:-1} replicas=${REPLICAS-8} growth=${GROWTH:-0}
else
  rounds=${ROUNDS:-5} replicas=${REPLICAS-8 64 512} growth=${GROWTH:-1}
fi
command -v cargo >/dev/null || { echo "bench-index: cargo is needed for the rival; see https://rustup.rs" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
results=${RESULTS:-$work/results}
go -C lab build -o "$work/indexbench" ./bench/cmd/indexbench
cargo build --quiet --release --manifest-path lab/bench/peers/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-lab/bench/peers/target}"
peers=${CARGO_TARGET_DIR:-lab/bench/peers/target}/release/peers
args=()
if [ -n "$trace" ]; then args+=(-trace "$trace"); fi
for r in $replicas; do
  "$work/indexbench" "${args[@]}" -r "$r" -out "$work"
  for i in $(seq "$rounds"); do
    echo "round $i of $rounds, $r replicas" >&2
    "$peers" "$work/ops-$r.bin" >>"$results"
    "$work/indexbench" "${args[@]}" -r "$r" -quick >>"$results"
  done
  "$peers" "$work/ops-$r.bin" full | grep events >>"$results"
  if [ -z "${QUICK:-}" ]; then
    "$work/indexbench" "${args[@]}" -r "$r" | grep -v replay: | tee -a "$results"
  fi
  rm -f "$work/ops-$r.bin"
done
if [ "$growth" = 1 ]; then
  for i in $(seq "$rounds"); do
    echo "growth, round $i of $rounds" >&2
    "$peers" growth >>"$results"
    "$work/indexbench" -growth -r "" >>"$results"
  done
fi
"$work/indexbench" -compare "$results"
echo "holders with cache groups beside dense ones, lookups:"
"$work/indexbench" -groups ${QUICK:+-quick}
