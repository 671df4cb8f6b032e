"""The official huggingface_hub behind a pipe: one JSON request a line on standard
input, one JSON answer a line on standard output.

    {"endpoint": URL, "cache": folder, "repo": name, "file": name, "local": bool}
        -> {"path": of the file in the cache, "sha256": of its content}
"""
import hashlib
import json
import os
import sys

os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
from huggingface_hub import hf_hub_download


def download(q):
    path = hf_hub_download(q["repo"], q["file"], cache_dir=q["cache"], endpoint=q["endpoint"], local_files_only=q["local"], token=False)
    with open(path, "rb") as f:
        return {"path": path, "sha256": hashlib.sha256(f.read()).hexdigest()}


for line in sys.stdin:
    try:
        answer = download(json.loads(line))
    except Exception as e:
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer), flush=True)
