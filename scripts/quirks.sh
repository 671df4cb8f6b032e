#!/usr/bin/env bash
# Rewrites the corpus of tokenizers' quirks (render/internal/tokenizer/testdata/quirks.md). quirks.py writes model
# folders, and vLLM 0.32, vLLM 0.21 and transformers 4 encode texts with them. vLLM 0.21
# runs twice: with transformers 5, which its package installs, and with transformers 4,
# which it accepts, too.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-vllm.sh 0.32.0 0.21.0
venv=.cache/transformers-4.57.3
if [ ! -e "$venv/ok" ]; then
  .cache/vllm/tools/bin/uv venv -q --clear "$venv"
  .cache/vllm/tools/bin/uv pip install -q --python "$venv/bin/python" --require-hashes -r scripts/requirements/quirks.txt
  touch "$venv/ok"
fi
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
"$venv/bin/python" scripts/quirks.py make "$rows"
.cache/vllm/0.32.0/bin/python scripts/quirks.py vllm "$rows" v0.32
.cache/vllm/0.21.0/bin/python scripts/quirks.py vllm "$rows" v0.21
PYTHONPATH=$(echo "$PWD/$venv"/lib/python3*/site-packages) .cache/vllm/0.21.0/bin/python scripts/quirks.py vllm "$rows" "v0.21 of 4"
python3 scripts/quirks.py pack "$rows" render/internal/tokenizer/testdata/quirks.jsonl.gz
go -C render test ./internal/tokenizer -run Quirks -update
