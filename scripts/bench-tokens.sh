#!/usr/bin/env bash
# Encoding, rendering and chats written in code beside the Python and Rust that they replace: three tables on standard output; -only NAME prints one.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/fetch-models.sh
scripts/fetch-oracle.sh
scripts/install-vllm.sh 0.32.0
go -C lab run ./bench/tokens "$@"
