"""Makes edge-<version>.json.gz: block hashes of unusual requests, by vLLM itself.

Run it with the Python of an environment that has vLLM installed:

    python gen.py DIRECTORY

Every string of a request goes through msgspec's MessagePack encoder and decoder
first, as it does on its way from vLLM's API server to its engine: the pickled
algorithms depend on which strings are the same object, not on which are equal.
"""

import gzip
import json
import os
import sys
from importlib.metadata import version

import msgspec
import torch
from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils as kv
from vllm.v1.request import Request

ALGORITHMS = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]


def sent(value):
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def tokens(n, step=7919, mod=151936):
    return [i * step % mod for i in range(n)]


# Where integers change their encoding, in pickle and in CBOR.
EDGES = [0, 1, 23, 24, 255, 256, 32767, 32768, 65535, 65536, 2**24, 2**31 - 1, 2**31, 2**31 + 255, 2**32 - 256, 2**32 - 1]
IMAGE, OTHER = "a" * 64, "b" * 64

CASES = {
    # name: (block size, tokens, lora, cache_salt, mm)
    "same item twice in a block": (16, tokens(48), None, None, [[IMAGE, 1, 3], [IMAGE, 6, 3]]),
    "same item three times, then another": (16, tokens(48), None, None, [[IMAGE, 0, 2], [IMAGE, 4, 2], [IMAGE, 8, 2], [OTHER, 12, 9]]),
    "same item twice, adapter and salt": (16, tokens(40), ["sql", "/a/sql"], "s", [[IMAGE, 1, 3], [IMAGE, 6, 20]]),
    "items that touch block bounds": (16, tokens(64), None, None, [[IMAGE, 0, 16], [OTHER, 16, 16], [IMAGE, 32, 32]]),
    "item up to the last token": (16, tokens(48), None, "salt", [[IMAGE, 47, 1]]),
    "item behind the last full block": (16, tokens(40), None, None, [[IMAGE, 33, 4]]),
    "one-token items": (4, tokens(16), None, None, [[IMAGE, i, 1] for i in range(16)]),
    "item over all blocks": (8, tokens(64), ["l", "/l"], None, [[IMAGE, 3, 61]]),
    "item identified as mm": (16, tokens(32), ["mm", "lora"], "cache_salt", [["mm", 1, 3], ["mm", 6, 3]]),
    "adapter named as its path": (16, tokens(32), ["/a", "/a"], None, None),
    "adapter and salt alike": (16, tokens(32), ["same-name", "same-name"], "same-name", None),
    "one-character names": (16, tokens(32), ["x", "y"], "z", None),
    "names beyond ASCII": (16, tokens(32), ["größe", "/модель"], "塩🧂", None),
    "salt of 255 bytes": (16, tokens(32), None, "s" * 255, None),
    "salt of 256 bytes": (16, tokens(32), None, "s" * 256, None),
    "salt of 65535 bytes": (16, tokens(32), None, "s" * 65535, None),
    "salt of 65536 bytes": (16, tokens(32), None, "s" * 65536, None),
    "salt of 70000 bytes, adapter": (16, tokens(32), ["l", "p" * 70000], "é" * 35000, [[IMAGE, 1, 3]]),
    "salt that fills a frame": (16, tokens(32), ["l" * 40000, "p" * 40000], "s" * 40000, [[IMAGE, 1, 3], [IMAGE, 5, 2]]),
    "two strings outside of frames": (16, tokens(32), ["l" * 70000, "p" * 70000], None, None),
    "frame filled exactly": (32760, tokens(32760, 1, 200), None, None, None),
    "empty salt": (16, tokens(32), None, "", None),
    "integer bounds": (16, EDGES, None, None, None),
    "integer bounds, with extras": (16, EDGES + EDGES, ["l", "/l"], "s", [[IMAGE, 2, 20]]),
    "blocks of 1": (1, EDGES, None, "s", [[IMAGE, 2, 3]]),
    "blocks of 2": (2, tokens(7), ["l", "/l"], "s", [[IMAGE, 2, 3]]),
    "blocks of 3": (3, tokens(11), ["l", "/l"], "s", [[IMAGE, 2, 3]]),
    "blocks of 4": (4, tokens(13), None, None, None),
    "blocks of 256": (256, tokens(520), None, "s", None),
    "blocks larger than a frame": (20000, (EDGES * 2501)[:40010], ["l", "/l"], "s", [[IMAGE, 100, 30000]]),
    "an item very long ago": (16384, tokens(5 * 16384, 1, 5), None, None, [[IMAGE, 10, 5 * 16384 - 20]]),
    "exactly three blocks": (16, tokens(48), None, "s", None),
    "one token less than three blocks": (16, tokens(47), None, "s", None),
    "less than a block": (16, tokens(15), None, "s", None),
    "no tokens to speak of": (16, tokens(1), None, None, None),
    "prompt embeddings": (16, tokens(48), ["l", "/l"], "s", None),
}
SEEDS = ["", "7", "s" * 255, "s" * 256, "größe"]


def vector(algorithm, seed, case, block_size, prompt, lora, salt, mm):
    os.environ.pop("PYTHONHASHSEED", None)
    if seed is not None:
        os.environ["PYTHONHASHSEED"] = seed
    hash_fn = get_hash_fn_by_name(algorithm)
    kv.init_none_hash(hash_fn)
    embeds = None
    if case == "prompt embeddings":
        embeds = torch.arange(len(prompt) * 4, dtype=torch.float32).reshape(len(prompt), 4)
    request = Request(
        "r", sent(prompt), SamplingParams(max_tokens=1), None,
        prompt_embeds=embeds,
        mm_features=[
            MultiModalFeatureSpec(None, "image", sent(i), PlaceholderRange(offset=o, length=n)) for i, o, n in mm or []
        ] or None,
        lora_request=LoRARequest(sent(lora[0]), 1, sent(lora[1])) if lora else None,
        cache_salt=sent(salt) if salt is not None else None,
        block_hasher=kv.get_request_block_hasher(block_size, hash_fn),
    )
    extras, at = [], 0
    for start in range(0, len(prompt) - block_size + 1, block_size):
        keys, at = kv.generate_block_hash_extra_keys(request, start, start + block_size, at)
        extras.append(keys)
    if hasattr(kv, "to_event_extra_keys"):
        extras = kv.to_event_extra_keys(extras) or []
    return {
        "algo": algorithm, "seed": seed, "none_hash": kv.NONE_HASH.hex(), "block_size": block_size, "case": case,
        "tokens": prompt, "lora": lora, "cache_salt": salt, "mm": mm, "event_extra_keys": extras,
        "embeds": embeds is not None, "hashes": [h.hex() for h in request.block_hashes],
    }


def vectors():
    for algorithm in ALGORITHMS:
        for case, (block_size, prompt, lora, salt, mm) in CASES.items():
            yield vector(algorithm, "42", case, block_size, prompt, lora, salt, mm)
        for seed in SEEDS:
            yield vector(algorithm, seed, "seed", 16, tokens(32), None, None, None)


def plain(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    raise TypeError(type(value))


if __name__ == "__main__":
    release = version("vllm").split("+")[0]
    text = json.dumps({"vllm": release, "vectors": list(vectors())}, default=plain, separators=(",", ":"))
    with open(os.path.join(sys.argv[1], f"edge-{release}.json.gz"), "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))
