#!/usr/bin/env bash
# Rewrites the corpus of tokenizers' quirks (docs/quirks.md): what transformers 4 and
# transformers 5, as installed beside vLLM 0.32, make of folders that it writes.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install-vllm.sh 0.32.0
venv=.cache/transformers-4.57.3
if [ ! -e "$venv/ok" ]; then
  .cache/vllm/tools/bin/uv venv -q --clear "$venv"
  .cache/vllm/tools/bin/uv pip install -q --python "$venv/bin/python" transformers==4.57.3 sentencepiece==0.2.3 protobuf==7.36.2 jinja2==3.1.6
  touch "$venv/ok"
fi
rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
"$venv/bin/python" scripts/quirks.py make "$rows"
.cache/vllm/0.32.0/bin/python scripts/quirks.py answer "$rows"
python3 scripts/quirks.py pack "$rows" internal/tokenizer/testdata/quirks.jsonl.gz
go test ./internal/tokenizer -run Quirks -update
