#!/usr/bin/env bash
# Measures encoding, rendering and chats written in code, each beside the Python and Rust
# that it replaces. It prints three tables on standard output; -only NAME prints one.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/fetch-models.sh
scripts/fetch-oracle.sh
scripts/install-vllm.sh 0.32.0
go -C lab run ./bench/tokens "$@"
