# tools FOLDER makes FOLDER/tools, a virtual environment with uv, which resolves and
# installs large sets of packages in seconds. Scripts source this file.
tools() {
  [ -x "$1/tools/bin/uv" ] && return
  python3 -m venv "$1/tools"
  "$1/tools/bin/pip" install -q --disable-pip-version-check --require-hashes -r scripts/requirements/uv.txt
}
