#!/usr/bin/env bash
# Encoding beside the Rust-backed Python tokenizers: one table on standard output.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/fetch-models.sh
scripts/fetch-oracle.sh
go run ./bench/tokens
