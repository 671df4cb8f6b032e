"""Drives vLLM's own scheduler and KV cache manager, with no model and no
worker, and writes what its cache did: the KV events it published and, between
them, each prefix cache lookup with what vLLM found.

    scheduler.py --list
    scheduler.py [--requests N] [--script] [--into DIR] NAME:SEED...   the configurations in order; SEED decides every choice

Run it with the Python of an installed vLLM (scripts/install-vllm.sh), and with
PYTHONHASHSEED set, so that equal seeds make equal captures. The
output is JSON lines, for each NAME:SEED a header first, then in order

    {"frame": {"topic", "seq", "payload"}}     a batch of events as published, base64
    {"query": {"tokens", "cache_salt"?, "lora_name"?, "lora_path"?}, "cached": N, "full_attention_only": M,
     "resumed"?: true, "lookup"?: n, "host"?: N}
    {"reset": {"silent": bool}}                with CPU memory (offload.py); silent: it is cleared, and no event tells

The cache at a query is that after all frames above it. "cached" is what usage
reports ("lookup" is the raw lookup where it differs), "full_attention_only" the
longest run of blocks in the full-attention group (without one: in group 0). A
resumed request is looked up with its prompt and its answer so far. With CPU
memory, a query is the lookup with which a request is admitted, and "host" the
part of "cached" that is loaded.

With --script the output also says what the scheduler was made to do, so that it
can be done again: {"submit": {"id", "tokens", "answer", "cache_salt"?,
"lora_name"?, "lora_path"?, "report"?}}, {"step": n}, {"scheduled": {"tokens": N, "admitted": [id...], "preempted": [id...]}} behind a step's
queries, {"abort": id} and {"reset": true}; queries then name their request's id alone, and nothing is drafted.

Layers go through vLLM's own grouping (get_kv_cache_configs), which also unifies
page sizes and marks the groups of a draft model, into a real Scheduler; odd
seeds take the AsyncScheduler with two batches in flight. Speculative decoding
is a stand-in that answers what the scheduler asks.
"""

import argparse
import base64
import gzip
import importlib.metadata
import json
import os
import random
import sys
import tempfile
from collections import deque
from types import SimpleNamespace

from offload import Memory, memory

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
os.environ["HF_HUB_OFFLINE"] = "1"

VOCABULARY = 16  # few tokens: prompts stay small on paper, and short ones collide

TINY = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1000,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "hidden_act": "silu",
}


# ---------------------------------------------------------------- configurations
#
# layers: a model's layers, in order. Each is a kind with its arguments;
# "heads" scales the page, so that vLLM has page sizes to unify.


def full(block=16, heads=2):
    return {"kind": "full", "block": block, "heads": heads}


def window(width, block=16, heads=2):
    return {"kind": "window", "block": block, "heads": heads, "window": width}


def chunked(chunk, block=16):
    return {"kind": "chunked", "block": block, "heads": 2, "chunk": chunk}


def mamba(block, checkpoints=0):
    return {"kind": "mamba", "block": block, "checkpoints": checkpoints}


def mla(block, per_state=1, size=576):
    return {"kind": "mla", "block": block, "per_state": per_state, "size": size}


def window_mla(width, block, replay=False, size=576):
    return {"kind": "window_mla", "block": block, "window": width, "replay": replay, "size": size}


def config(layers, blocks, lengths, **more):
    """lengths: prompt lengths that matter to the model (edges of blocks, windows, chunks), longest last."""
    return {"layers": layers, "blocks": blocks, "lengths": lengths, "batch": 256, "since": "0.21", **more}


def interleaved(*kinds, times):
    return [dict(k) for _ in range(times) for k in kinds]


GPTOSS = interleaved(window(128), full(), times=4)
GPTOSS_LENGTHS = [16, 112, 127, 128, 129, 144, 145, 256, 400, 700]
GEMMA3 = interleaved(*[window(512)] * 5, full(), times=2)
NEXT_LENGTHS = [96, 97, 192, 193, 288, 500, 900]
NEXT = interleaved(mamba(96), mamba(96), mamba(96), full(96), times=3)
DEEPSEEK_V4 = (
    interleaved(window_mla(128, 64), mla(256, 4), mla(256, 4, 128), window_mla(8, 4), times=2)
    + interleaved(window_mla(128, 64), mla(256, 128), window_mla(128, 8), times=2)
    + [window_mla(128, 64)] * 2
)
MTP = {"method": "mtp", "tokens": 2}
EAGLE = {"method": "eagle", "tokens": 3}
CHUNKS, SINGLES = "OffloadingConnector", "SimpleCPUOffloadConnector"

CONFIGS = {
    "full": config([full()] * 2, 280, [16, 17, 256, 700]),
    "full-eagle": config([full()] * 2, 280, [16, 17, 256, 700], spec=EAGLE),
    "full-lora": config([full()] * 2, 320, [16, 17, 256, 700], lora=True),
    "full-preempt": config([full()] * 2, 90, [16, 64, 256, 700], output=96, flight=6, longest=1300),
    "full-queue": config([full()] * 2, 90, [16, 64, 256, 700], output=96, flight=12, longest=1300, salted=0, resets=0, aborts=0),
    "full-queue-places": config([full()] * 2, 150, [16, 17, 256, 700], output=96, flight=12, longest=1300, seqs=3, salted=0, resets=0, aborts=0),
    "full-queue-chunks": config([full()] * 2, 110, [16, 64, 256, 700], output=190, flight=10, longest=1300, batch=48, salted=0, resets=0, aborts=0),
    "mla": config([mla(64)] * 3, 90, [64, 65, 256, 900]),
    "gptoss": config(GPTOSS, 360, GPTOSS_LENGTHS),
    "gptoss-dense": config(GPTOSS, 360, GPTOSS_LENGTHS, retention=None, since="0.32"),
    "gptoss-retention": config(GPTOSS, 360, GPTOSS_LENGTHS, retention=256, since="0.32"),
    "gptoss-cbor-bytes": config(interleaved(window(128, 32), full(32), times=4), 220, GPTOSS_LENGTHS, algo="sha256_cbor", bytes=True),
    "gptoss-eagle": config(GPTOSS, 400, GPTOSS_LENGTHS, spec=EAGLE),
    "gptoss-eagle-dense": config(GPTOSS, 400, GPTOSS_LENGTHS, spec=EAGLE, retention=None, since="0.32"),
    "gptoss-mtp-multi": config(GPTOSS, 400, GPTOSS_LENGTHS, spec={**MTP, "multi": True}, since="0.32"),
    "gptoss-preempt": config(GPTOSS, 150, GPTOSS_LENGTHS, output=64, flight=6, longest=1200),
    "gptoss-report": config(GPTOSS, 360, GPTOSS_LENGTHS, report=True, since="0.32"),
    "gptoss-unit": config(GPTOSS, 360, GPTOSS_LENGTHS, unit=8),
    "gptoss-lora": config(GPTOSS, 400, GPTOSS_LENGTHS, lora=True),
    "gptoss-salts": config(GPTOSS, 400, GPTOSS_LENGTHS, salted=0.4),
    "gptoss-tiny-pool": config(GPTOSS, 110, GPTOSS_LENGTHS, longest=1000),
    "gptoss-resets": config(GPTOSS, 500, GPTOSS_LENGTHS, resets=12),
    "gemma3": config(GEMMA3, 1400, [16, 496, 511, 512, 513, 528, 900]),
    "gemma3-tight": config(GEMMA3, 520, [16, 496, 511, 512, 513, 528, 900]),
    "gemma3-wide": config(interleaved(*[window(1024, 32)] * 5, full(32), times=2), 1000, [32, 1023, 1024, 1025, 1500]),
    "gemma4-unequal": config(interleaved(*[window(256, heads=2)] * 3, full(heads=4), times=2), 420, [16, 32, 255, 257, 288, 700]),
    "two-windows": config(interleaved(window(64), window(256), full(), times=3), 460, [16, 63, 65, 255, 257, 700]),
    "gemma3-eagle": config(GEMMA3, 1400, [16, 496, 511, 512, 513, 528, 900], spec=EAGLE),
    "two-windows-eagle": config(interleaved(window(64), window(256), full(), times=3), 460, [16, 63, 65, 255, 257, 700], spec=EAGLE),
    "full-eagle-ahead": config([full()] * 2, 280, [16, 17, 256, 700], spec={**EAGLE, "ahead": True}, since="0.33"),
    "gptoss-eagle-ahead": config(GPTOSS, 400, GPTOSS_LENGTHS, spec={**EAGLE, "ahead": True}, since="0.33"),
    "gptoss-mtp-ahead": config(GPTOSS, 400, GPTOSS_LENGTHS, spec={**MTP, "multi": True, "ahead": True}, lora=True, salted=0.3, since="0.33"),
    "gemma4-eagle-ahead": config(interleaved(*[window(256, heads=2)] * 3, full(heads=4), times=2), 420, [16, 32, 255, 257, 288, 700], spec={**EAGLE, "ahead": True}, since="0.33"),
    "next-mtp-ahead": config(interleaved(mamba(96), mamba(96), full(96), times=3), 170, NEXT_LENGTHS, spec={**MTP, "ahead": True}, since="0.33"),
    "windows-only-eagle": config([window(128)] * 4, 200, GPTOSS_LENGTHS, spec=EAGLE),
    "mla-mtp": config([mla(64)] * 3, 90, [64, 65, 256, 900], spec=MTP),
    "mamba-window": config(interleaved(mamba(64), window(128, 64), full(64), times=3), 120, [64, 65, 127, 128, 192, 500, 700]),
    "mamba-window-unit": config(interleaved(mamba(64), window(128, 64), full(64), times=3), 120, [64, 65, 127, 128, 192, 500, 700], unit=16, since="0.32"),
    "full-first-tight": config([full()] + interleaved(*[window(64)] * 2, full(), times=2) + [window(64)] * 2, 170, GPTOSS_LENGTHS, longest=1200, flight=5),
    "next-report": config(NEXT, 150, NEXT_LENGTHS, report=True, since="0.32"),
    "gptoss-roomy": config(GPTOSS, 30000, GPTOSS_LENGTHS, flight=1, resets=0, aborts=0),
    "gptoss-eagle-roomy": config(GPTOSS, 30000, GPTOSS_LENGTHS, flight=1, resets=0, aborts=0, spec=EAGLE),
    "gemma3-roomy": config(GEMMA3, 60000, [16, 496, 511, 512, 513, 528, 900], flight=1, resets=0, aborts=0),
    "next-roomy": config(NEXT, 9000, NEXT_LENGTHS, flight=1, resets=0, aborts=0),
    "next-mtp-roomy": config(interleaved(mamba(96), mamba(96), full(96), times=3), 9000, NEXT_LENGTHS, flight=1, resets=0, aborts=0, spec=MTP),
    "gptoss-dense-roomy": config(GPTOSS, 30000, GPTOSS_LENGTHS, flight=1, resets=0, aborts=0, retention=None, since="0.32"),
    "gptoss-retention-roomy": config(GPTOSS, 30000, GPTOSS_LENGTHS, flight=1, resets=0, aborts=0, retention=256, since="0.32"),
    "gptoss-close-roomy": config(GPTOSS, 30000, GPTOSS_LENGTHS, flight=1, resets=0, aborts=0, retention=64, since="0.32"),
    "gemma4-roomy": config(interleaved(*[window(256, heads=2)] * 3, full(heads=4), times=2), 30000, [16, 32, 255, 257, 288, 700], flight=1, resets=0, aborts=0),
    "two-windows-roomy": config(interleaved(window(64), window(256), full(), times=3), 30000, [16, 63, 65, 255, 257, 700], flight=1, resets=0, aborts=0),
    "llama4-roomy": config(interleaved(*[chunked(256)] * 3, full(), times=3), 30000, [16, 255, 256, 257, 272, 512, 700], flight=1, resets=0, aborts=0),
    "mamba-window-roomy": config(interleaved(mamba(64), window(128, 64), full(64), times=3), 12000, [64, 65, 127, 128, 192, 500, 700], flight=1, resets=0, aborts=0),
    "next-retention-roomy": config(NEXT, 9000, NEXT_LENGTHS, retention=384, flight=1, resets=0, aborts=0, since="0.32"),
    # With hits inside blocks (Mamba) vLLM 0.32 raises an IndexError on the first report of one.
    "gptoss-unit-report": config(GPTOSS, 360, GPTOSS_LENGTHS, report=True, unit=8, since="0.32"),
    "full-report": config([full()] * 2, 280, [16, 17, 256, 700], report=True, since="0.27"),
    "next-lora-salts": config(NEXT, 150, NEXT_LENGTHS, lora=True, salted=0.3),
    "windows-only": config([window(128)] * 4, 200, GPTOSS_LENGTHS),
    "full-first-window": config([full()] + interleaved(*[window(128)] * 3, full(), times=2) + [window(128)] * 3, 240, GPTOSS_LENGTHS, longest=1600),
    "llama4-chunked": config(interleaved(*[chunked(256)] * 3, full(), times=3), 800, [16, 255, 256, 257, 272, 512, 700]),
    "next": config(NEXT, 110, NEXT_LENGTHS),
    "next-dense": config(NEXT, 150, NEXT_LENGTHS, retention=None, since="0.32"),
    "next-retention": config(NEXT, 130, NEXT_LENGTHS, retention=384, since="0.32"),
    "next-unit": config(NEXT, 110, NEXT_LENGTHS + [32, 64, 160], unit=32, since="0.27"),
    "next-unit-checkpoints": config(interleaved(*[mamba(96, 1)] * 3, full(96), times=3), 130, NEXT_LENGTHS + [16, 48, 160], unit=16, since="0.32"),
    "next-mtp": config(interleaved(mamba(96), mamba(96), full(96), times=3), 170, NEXT_LENGTHS, spec=MTP),
    "next-mtp-unit": config(interleaved(mamba(96), mamba(96), full(96), times=3), 170, NEXT_LENGTHS + [32, 64, 160], spec=MTP, unit=32, since="0.27"),
    "next-mtp-junction": config(interleaved(mamba(96), mamba(96), full(96), times=3), 170, NEXT_LENGTHS + [32, 64, 160], spec=MTP, unit=32, junction=True, since="0.32"),
    "next-wide": config(interleaved(*[mamba(544)] * 3, full(544), times=3), 48, [544, 545, 1088, 1300], batch=1024, longest=2600),
    "next-wide-small-batch": config(interleaved(*[mamba(528)] * 3, full(528), times=3), 48, [528, 529, 1056, 1300], longest=2600, since="0.27"),
    "next-wide-unit-dense": config(interleaved(*[mamba(544)] * 3, full(544), times=3), 60, [544, 545, 1088, 1300], batch=1024, longest=2600, unit=32, retention=None, since="0.27"),
    "full-first-mamba": config([full(64)] + interleaved(*[mamba(64)] * 2, full(64), times=2) + [mamba(64)] * 2, 52, [64, 65, 128, 500, 700]),
    "mamba-only": config([mamba(64)] * 4, 60, [64, 65, 128, 500, 700]),
    "deepseek-v4": config(DEEPSEEK_V4, 1500, [64, 256, 257, 512, 1200], batch=1024, longest=2600, since="0.32", layout="BLNHC"),
    # With CPU memory. Pools are small, so that much is loaded.
    "full-chunks": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300, late=3), salted=0.2, since="0.32"),
    "full-chunks3-lora": config([full()] * 2, 110, [16, 48, 49, 256, 700], longest=1000, memory=memory(CHUNKS, 100, 3, late=8), lora=True, salted=0.2, since="0.32"),
    "full-chunks4-described": config([full()] * 2, 110, [16, 64, 65, 256, 700], longest=1000, memory=memory(CHUNKS, 70, 4, late=1, self_describing_kv_events=True), lora=True, salted=0.3, since="0.32"),
    "full-chunks-multi": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300, multi=True, eviction_policy="arc"), since="0.32"),
    "full-chunks-preempt": config([full()] * 2, 90, [16, 64, 256, 700], memory=memory(CHUNKS, 200, late=2), output=96, flight=6, longest=1300, since="0.32"),
    "full-chunks-resets": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300, late=3), resets=8, since="0.32"),
    "full-chunks-busy-resets": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300, late=3), resets=8, busy=True, since="0.32"),
    "full-chunks-eagle": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300, late=2), spec=EAGLE, since="0.32"),
    "full-chunks3-eagle": config([full()] * 2, 110, [16, 48, 49, 256, 700], longest=1000, memory=memory(CHUNKS, 100, 3), spec=EAGLE, lora=True, since="0.32"),
    "full-chunks-ahead": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(CHUNKS, 300), spec={**EAGLE, "ahead": True}, since="0.33"),
    "full-chunks2-all": config([full()] * 2, 110, [16, 32, 33, 256, 700], longest=1000, memory=memory(CHUNKS, 150, 2, late=3), salted=0.3, lora=True, spec=EAGLE, resets=6, busy=True, since="0.32"),
    "full-singles": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=3), salted=0.2, lora=True, since="0.32"),
    "full-singles-lazy": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, lazy_offload=True), since="0.32"),
    "full-singles-multi": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 160, late=6, multi=True), since="0.32"),
    "full-singles-resets": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=3), resets=8, since="0.32"),
    "full-singles-busy-resets": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=6), resets=8, busy=True, since="0.32"),
    "full-singles-eagle": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=2), spec=EAGLE, since="0.32"),
    "full-singles-ahead": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=2), spec={**EAGLE, "ahead": True}, since="0.33"),
    "full-singles-all": config([full()] * 2, 110, [16, 17, 256, 700], longest=1000, memory=memory(SINGLES, 300, late=3), salted=0.3, lora=True, spec=EAGLE, resets=6, busy=True, since="0.32"),
    "gptoss-chunks": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 400, late=4), salted=0.2, since="0.32"),
    "gptoss-chunks4-lora": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 130, 4, late=2), lora=True, since="0.32"),
    "gptoss-chunks2-described": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 200, 2, self_describing_kv_events=True), salted=0.2, since="0.32"),
    "gptoss-chunks-busy-resets": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 400, late=2), resets=8, busy=True, since="0.32"),
    "gptoss-chunks-eagle": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 400), spec=EAGLE, since="0.32"),
    "gptoss-chunks-ahead": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 400), spec={**EAGLE, "ahead": True}, since="0.33"),
    "gptoss-chunks2-mtp": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(CHUNKS, 200, 2), spec=MTP, since="0.32"),
    "gptoss-singles": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(SINGLES, 300, late=2), salted=0.2, lora=True, since="0.32"),
    "gptoss-singles-busy-resets": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(SINGLES, 300, late=2), resets=8, busy=True, since="0.32"),
    "gptoss-singles-eagle": config(GPTOSS, 120, GPTOSS_LENGTHS, longest=1000, memory=memory(SINGLES, 300), spec=EAGLE, since="0.32"),
    "two-windows-chunks2": config(interleaved(window(64), window(256), full(), times=3), 190, [16, 63, 65, 255, 257, 700], longest=1000, memory=memory(CHUNKS, 200, 2, late=2), since="0.32"),
    "next-chunks": config(NEXT, 60, NEXT_LENGTHS, longest=1000, memory=memory(CHUNKS, 200, late=2), salted=0.2, lora=True, since="0.32"),
    "next-chunks2": config(NEXT, 60, NEXT_LENGTHS, longest=1000, memory=memory(CHUNKS, 100, 2), since="0.32"),
    "next-unit-chunks": config(NEXT, 60, NEXT_LENGTHS + [32, 64, 160], longest=1000, memory=memory(CHUNKS, 200), unit=32, since="0.32"),
    "next-chunks-all": config(NEXT, 60, NEXT_LENGTHS, longest=1000, memory=memory(CHUNKS, 200, late=2), salted=0.3, lora=True, spec=MTP, resets=6, busy=True, since="0.32"),
    "next-singles-busy-resets": config(NEXT, 60, NEXT_LENGTHS, longest=1000, memory=memory(SINGLES, 200, late=3), salted=0.2, lora=True, resets=6, busy=True, since="0.32"),
    "next-singles": config(NEXT, 60, NEXT_LENGTHS, longest=1000, memory=memory(SINGLES, 200, late=1), since="0.32"),
    "next-unit-singles": config(NEXT, 60, NEXT_LENGTHS + [32, 64, 160], longest=1000, memory=memory(SINGLES, 200), unit=32, since="0.32"),
    "mla-chunks": config([mla(64)] * 3, 34, [64, 65, 256, 900], longest=1000, memory=memory(CHUNKS, 100, 2, late=1), since="0.32"),
    "deepseek-replay": config(interleaved(window_mla(128, 64, replay=True), mla(64), times=3), 160, [64, 128, 129, 192, 900], batch=512, since="0.32"),
}


# ---------------------------------------------------------------- vLLM


def number(version):
    return tuple(int(p) for p in version.split("+")[0].split(".")[:2])


def supported():
    """The configurations that the installed vLLM has."""
    has = number(importlib.metadata.version("vllm"))
    return [name for name, c in CONFIGS.items() if has >= number(c["since"])]


class Vllm:
    """The installed vLLM, imported once."""

    def __init__(self):
        import torch
        import vllm
        from vllm import config as vllm_config
        from vllm.v1 import kv_cache_interface, request
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched import async_scheduler, scheduler

        try:
            from vllm.v1.core import kv_cache_planning as planning
        except ImportError:  # 0.32 and older
            planning = kv_cache_utils
        self.planning = planning
        self.torch, self.config, self.specs, self.utils, self.request = torch, vllm_config, kv_cache_interface, kv_cache_utils, request
        self.version = vllm.__version__.split("+")[0]
        self.number = number(self.version)
        self.schedulers = {False: scheduler.Scheduler, True: async_scheduler.AsyncScheduler}
        self.made = tempfile.TemporaryDirectory(prefix="tiny-model-")
        self.folder = self.made.name
        with open(os.path.join(self.folder, "config.json"), "w") as f:
            json.dump(TINY, f)

    def spec(self, layer, c):
        s, torch = self.specs, self.torch
        kind, block = layer["kind"], layer["block"]
        if kind == "mamba":
            more = {}
            if layer["checkpoints"]:
                more["num_prefill_checkpoint_blocks"] = layer["checkpoints"]
            if c.get("spec"):
                more["num_speculative_blocks"] = c["spec"]["tokens"]
            return s.MambaSpec(block_size=block, shapes=((2 * block, 2 * 64),), dtypes=(torch.bfloat16,), mamba_cache_mode="align", **more)
        common = {"block_size": block, "dtype": torch.bfloat16}
        if kind == "mla":
            more = {"tokens_per_state": layer["per_state"]} if layer["per_state"] > 1 else {}
            return s.MLAAttentionSpec(num_kv_heads=1, head_size=layer["size"], **common, **more)
        if kind == "window_mla":
            return s.SlidingWindowMLASpec(num_kv_heads=1, head_size=layer["size"], sliding_window=layer["window"], bounded_replay=layer["replay"], **common)
        common |= {"num_kv_heads": layer["heads"], "head_size": 64}
        if kind == "window":
            return s.SlidingWindowSpec(sliding_window=layer["window"], **common)
        if kind == "chunked":
            return s.ChunkedLocalAttentionSpec(attention_chunk_size=layer["chunk"], **common)
        return s.FullAttentionSpec(**common)

    def register(self, settings):
        from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs

        register_all_kvcache_specs(settings)

    def cache(self, settings, c):
        """The KV cache that vLLM plans for a configuration's layers, and the sizes of its blocks and hashes."""
        layers = {f"model.layers.{i}.attn": self.spec(layer, c) for i, layer in enumerate(c["layers"])}
        kv = self.utils.generate_scheduler_kv_cache_config(self.plan(settings, layers))
        return kv, *self.utils.resolve_kv_cache_block_sizes(kv, settings)

    def scheduler(self, settings, kv, block, unit, asynchronous=False):
        from vllm.v1.structured_output import StructuredOutputManager

        return self.schedulers[asynchronous](
            vllm_config=settings, kv_cache_config=kv, structured_output_manager=StructuredOutputManager(settings),
            block_size=block, hash_block_size=unit, log_stats=True,
        )

    def asked(self, **of):
        """A request, without an end-of-sequence token where a release asks for one."""
        import inspect

        wanted = inspect.signature(self.request.Request.__init__).parameters
        return self.request.Request(**of, **({"eos_token_id": None} if "eos_token_id" in wanted else {}))

    def plan(self, settings, layers):
        p, groups = self.planning, []
        if hasattr(p, "get_global_kv_cache_groups"):
            groups = [p.get_global_kv_cache_groups(settings, [layers])]
        return p.get_kv_cache_configs(settings, [layers], [1 << 40], *groups)

    def settings(self, c, asynchronous):
        """A VllmConfig as the engine would have it after reading the model."""
        v = self.config
        longest = c.get("longest", 2000)
        model = v.ModelConfig(model=self.folder, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=longest)
        cache = v.CacheConfig(block_size=16, enable_prefix_caching=True, prefix_caching_hash_algo=c.get("algo", "sha256"))
        sched = v.SchedulerConfig(
            max_num_seqs=c.get("seqs", 16), max_num_batched_tokens=c["batch"], max_model_len=longest, is_encoder_decoder=False,
            enable_chunked_prefill=True, async_scheduling=asynchronous, disable_hybrid_kv_cache_manager=False,
        )
        out = v.VllmConfig(model_config=model, cache_config=cache, scheduler_config=sched)
        cache = out.cache_config
        dense = [layer["block"] for layer in c["layers"] if layer["kind"] in ("full", "mla")]
        cache.block_size = max(dense or [layer["block"] for layer in c["layers"]])
        cache.num_gpu_blocks = cache.num_gpu_blocks_override = c["blocks"]
        cache.enable_prefix_caching = True
        if any(layer["kind"] == "mamba" for layer in c["layers"]):
            cache.mamba_cache_mode, cache.mamba_block_size = "align", cache.block_size
        if hasattr(cache, "kv_cache_layout"):
            cache.kv_cache_layout = c.get("layout", "LBNHC")
        if hasattr(cache, "prefix_cache_retention_interval"):
            cache.prefix_cache_retention_interval = c.get("retention", 0)
        if "unit" in c:
            setattr(cache, "prefix_match_unit" if hasattr(cache, "prefix_match_unit") else "hash_block_size", c["unit"])
        if c.get("junction"):
            cache.enable_mamba_shared_prefix_checkpoint = True
        if c.get("lora"):
            out.lora_config = SimpleNamespace(max_loras=2)
        out.scheduler_config.async_scheduling = asynchronous
        out.kv_events_config = v.KVEventsConfig(enable_kv_cache_events=True, publisher="null")
        if c.get("spec"):
            out.speculative_config = Speculation(c["spec"])
        return out


class Speculation:
    """What the scheduler asks of a speculative configuration."""

    num_speculative_tokens_per_batch_size = None
    max_num_new_slots_for_drafting = 0
    disable_padded_drafter_batch = False
    disable_eagle_block_drop = False
    enable_adaptive_verification = False

    def __init__(self, spec):
        self.method, self.num_speculative_tokens, self.multi = spec["method"], spec["tokens"], spec.get("multi", False)
        # 0.33 lets a block's hash cover the tokens after it instead of dropping blocks, if not told otherwise.
        self.disable_lookahead_block_hashes = not spec.get("ahead", False)

    def use_eagle(self):
        return True

    def use_eagle_block_drop(self):
        return True

    needs_eagle_block_drop = use_eagle_block_drop

    def use_multi_module_mtp(self):
        return self.multi

    def uses_draft_model(self):
        return False

    def use_dspark(self):
        return False

    use_dflash = uses_dynamic_speculative_decoding = uses_draft_model


# ---------------------------------------------------------------- one capture


class Capture:
    """A scheduler under traffic, and the lines that say what it did."""

    def __init__(self, v, name, seed, script):
        self.script, self.steps = script, 0
        self.v, self.name, self.seed, self.c = v, name, seed, CONFIGS[name]
        self.rng = random.Random(f"{name}:{seed}")
        self.lines, self.step_queries, self.seq = [], [], 0
        self.asynchronous = seed % 2 == 1
        self.hash_seed = self.c.get("hash_seed", "0" if v.number < (0, 32) else None)
        self.build()
        self.prompts, self.live, self.numbered, self.scheduling = [], {}, 0, False

    def build(self):
        from vllm.utils.hashing import get_hash_fn_by_name

        v, c = self.v, self.c
        os.environ.pop("PYTHONHASHSEED", None)
        if self.hash_seed is not None:
            os.environ["PYTHONHASHSEED"] = self.hash_seed
        os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0" if c.get("bytes") else "1"
        settings = self.settings = v.settings(c, self.asynchronous)
        self.kv, self.scheduler_block, self.unit = v.cache(settings, c)
        self.memory = None
        if "memory" in c:
            v.register(settings)
            self.memory = Memory(c["memory"], random.Random(f"memory:{self.name}:{self.seed}"))
            settings.kv_transfer_config = self.memory.settings(v.config, self.kv)
        self.scheduler = v.scheduler(settings, self.kv, self.scheduler_block, self.unit, self.asynchronous)
        hash_fn = get_hash_fn_by_name(c.get("algo", "sha256"))
        v.utils.init_none_hash(hash_fn)
        self.none_hash = v.utils.NONE_HASH
        ahead = getattr(self.scheduler, "num_hash_lookahead_tokens", 0)
        self.hasher = v.utils.get_request_block_hasher(self.unit, hash_fn, *[ahead] if ahead else [])
        self.scheduler.kv_event_publisher = self
        self.manager = self.scheduler.kv_cache_manager
        self.lookup = self.manager.get_computed_blocks
        self.manager.get_computed_blocks = self.looked_up
        if self.memory:
            self.asked = {}  # the line of a request's last lookup
            self.admit = self.scheduler.connector.update_state_after_alloc
            self.scheduler.connector.update_state_after_alloc = self.admitted

    # The publisher's part.

    def publish(self, batch):
        import msgspec

        batch.data_parallel_rank = 0
        batch.ts = 0.0
        payload = msgspec.msgpack.encode(batch)
        self.lines.append({"frame": {"topic": f"kv@127.0.0.1:8000@{self.name}", "seq": self.seq, "payload": base64.b64encode(payload).decode()}})
        self.seq += 1

    def shutdown(self):
        pass

    def flush(self):
        """Pending events become a frame now, so that a lookup sees the state of all frames above it."""
        from vllm.distributed.kv_events import KVEventBatch

        events = list(self.manager.take_events() or ())
        if self.memory and not self.scheduling:  # lookups copy nothing
            events += self.scheduler.connector.take_events() or ()
        if events:
            self.publish(KVEventBatch(ts=0.0, events=events))

    def looked_up(self, request, *limit):
        self.flush()
        full_only = self.full_attention_only(request)
        found = self.lookup(request, *limit)
        self.flush_reported(request)
        if request.skip_reading_prefix_cache:
            return found
        query = {"id": request.request_id} if self.script else self.described(request, list(request.all_token_ids))
        line = {"query": query, "cached": found[1], "full_attention_only": full_only}
        if self.memory:  # until it is admitted
            line["void"] = True
            self.asked[request.request_id] = line
        # Events of the lookup itself (report mode) come after it.
        self.lines.insert(len(self.lines) - self.reported, line)
        self.step_queries.append((request, line))
        return found

    def admitted(self, request, blocks, loaded):
        self.admit(request, blocks, loaded)
        if line := self.asked.pop(request.request_id, None):  # else it comes back from its load
            del line["void"]
            line["cached"] += loaded
            line["host"] = loaded

    def described(self, request, tokens):
        out = {"tokens": tokens}
        if request.cache_salt:
            out["cache_salt"] = request.cache_salt
        if request.lora_request is not None:
            out["lora_name"], out["lora_path"] = request.lora_request.lora_name, request.lora_request.lora_path
        return out

    def flush_reported(self, request):
        before = len(self.lines)
        self.flush()
        self.reported = len(self.lines) - before

    def full_attention_only(self, request):
        groups = self.kv.kv_cache_groups
        at = next((i for i, g in enumerate(groups) if isinstance(g.kv_cache_spec, self.v.specs.FullAttentionSpec)), 0)
        block = groups[at].kv_cache_spec.block_size
        scale, pool, n = block // self.unit, self.manager.block_pool, 0
        while (n + 1) * block < request.num_tokens and (n + 1) * scale <= len(request.block_hashes):
            if not pool.get_cached_block(self.hash_at(request, n, scale), [at]):
                break
            n += 1
        return n * block

    def hash_at(self, request, n, scale):
        if self.v.number >= (0, 32) or scale == 1:
            return request.block_hashes[(n + 1) * scale - 1]
        return self.v.utils.BlockHashListWithBlockSize(request.block_hashes, self.unit, self.unit * scale)[n]

    def settle(self):
        """After schedule(): what usage will say of each request looked up in it."""
        for request, line in self.step_queries:
            if "void" in line:
                continue
            if request.num_preemptions > 0:
                line["resumed"] = True
                continue
            stats = request.prefill_stats
            if stats is not None and stats.num_prompt_tokens and stats.num_cached_tokens != line["cached"]:
                line["lookup"], line["cached"] = line["cached"], stats.num_cached_tokens
        self.step_queries.clear()

    # The traffic.

    def length(self):
        edges = self.c["lengths"]
        pick = self.rng.random()
        if pick < 0.08:
            return self.rng.randint(1, 15)
        if pick < 0.45:
            return max(1, self.rng.choice(edges) + self.rng.choice((-1, 0, 0, 1)))
        return self.rng.randint(4, edges[-1] if edges[-1] > 400 else max(edges))

    def tokens(self, n):
        return [self.rng.randrange(VOCABULARY) for _ in range(n)]

    def prompt(self):
        """A new prompt, a branch, a repeat or a next turn of an earlier one."""
        pick, most = self.rng.random(), self.c.get("longest", 2000) - 200
        if self.prompts and pick < 0.75:
            old = self.rng.choice(self.prompts[-24:] if pick < 0.6 else self.prompts)
            how = self.rng.random()
            if how < 0.2:
                tokens = old["tokens"][: old["prompt"]]
            elif how < 0.6:
                tokens = old["tokens"] + self.tokens(self.rng.choice((1, 3, 17, 40, self.length())))
            else:
                cut = self.rng.choice((self.rng.randint(1, len(old["tokens"])), self.length()))
                tokens = old["tokens"][:cut] + self.tokens(self.rng.choice((1, 9, 33, self.length())))
            return tokens[:most], old["salt"] if self.rng.random() < 0.95 else None, old["lora"]
        if self.rng.random() < 0.35:
            shared = self.shared(self.rng.randrange(4))
            tokens = shared + self.tokens(self.rng.choice((1, 20, self.length())))
        else:
            tokens = self.tokens(self.length())
        salt = f"tenant-{self.rng.randrange(2)}" if self.rng.random() < self.c.get("salted", 0.06) else None
        lora = self.rng.choice((None, 1, 2)) if self.c.get("lora") else None
        return tokens[:most], salt, lora

    def shared(self, n):
        r = random.Random(f"{self.name}:{self.seed}:shared:{n}")
        return [r.randrange(VOCABULARY) for _ in range(r.choice(self.c["lengths"]) + r.choice((0, 0, 5)))]

    def submit(self):
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import SamplingParams

        tokens, salt, lora = self.prompt()
        self.numbered += 1
        extra = {"kv_cache_report_mode": "full"} if self.c.get("report") and self.rng.random() < 0.3 else None
        params = SamplingParams(max_tokens=self.rng.randint(1, self.c.get("output", 24)), ignore_eos=True, extra_args=extra)
        adapter = LoRARequest(f"adapter-{lora}", lora, f"/adapters/{lora}") if lora else None
        request = self.v.asked(
            request_id=f"r{self.numbered}", prompt_token_ids=tokens, sampling_params=params, pooling_params=None,
            lora_request=adapter, cache_salt=salt, block_hasher=self.hasher,
        )
        self.live[request.request_id] = request
        if self.script:
            said = {"id": request.request_id, **self.described(request, tokens), "max_tokens": params.max_tokens}
            if extra:
                said["report"] = True
            request.said = said
            self.lines.append({"submit": said})
        self.scheduler.add_request(request)
        self.prompts.append({"tokens": tokens, "prompt": len(tokens), "salt": salt, "lora": lora, "request": request})

    def remember(self, request):
        """The answer belongs to what a next turn extends."""
        if self.script:
            request.said["answer"] = list(request.output_token_ids)
        for p in self.prompts:
            if p.get("request") is request:
                p["tokens"] = list(request.all_token_ids)
                del p["request"]

    # The engine's loop.

    def execute(self, output, ends, copied):
        """What a worker would return: a sampled token for each request in ends, drafts now and then accepted."""
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        ids, sampled = list(output.num_scheduled_tokens), []
        for i in ids:
            request = self.scheduler.requests.get(i)
            drafts = output.scheduled_spec_decode_tokens.get(i, ())
            n = 0
            if request is not None and i in ends:
                n = 1 + (self.rng.randint(0, len(drafts)) if drafts and not self.script else 0)
            sampled.append(self.tokens(n))
        kwargs = dict(req_ids=ids, req_id_to_index={r: k for k, r in enumerate(ids)}, sampled_token_ids=sampled,
                      logprobs=None, prompt_logprobs_dict={}, pooler_output=[], kv_connector_output=copied)
        out = self.scheduler.update_from_output(output, ModelRunnerOutput(**kwargs))
        if self.c.get("spec") and not self.asynchronous and not self.script:
            n = self.c["spec"]["tokens"]
            alive = [i for k, i in enumerate(ids) if i in self.scheduler.requests and sampled[k]]
            self.scheduler.update_draft_token_ids(DraftTokenIds(alive, [self.tokens(n) for _ in alive]))
        for core in out.values():
            for o in core.outputs:
                if o.finish_reason is not None:
                    self.remember(self.live.pop(o.request_id))

    def schedule(self):
        """A step, the requests it brings to the end of what is known (for them a token is sampled), and the copies that end with it."""
        if self.script:
            self.steps += 1
            self.lines.append({"step": self.steps})
        if self.memory:
            self.flush()
        before = [r.request_id for r in self.scheduler.running]
        self.scheduling = True
        output = self.scheduler.schedule()
        self.scheduling = False
        self.settle()
        if self.script:
            after = {r.request_id for r in self.scheduler.running}
            self.lines.append({"scheduled": {
                "tokens": output.total_num_scheduled_tokens, "admitted": [i for i in output.num_scheduled_tokens if i not in before],
                "preempted": [i for i in before if i not in after],
            }})
        known = self.scheduler.requests
        copied = self.memory.run(output.kv_connector_metadata) if self.memory else None
        return output, {i for i in output.num_scheduled_tokens if known[i].num_computed_tokens >= known[i].num_tokens}, copied

    def run(self, requests):
        flight, depth = deque(), 2 if self.asynchronous else 1
        most, idle = self.c.get("flight", 3), 0
        resets = sorted(self.rng.sample(range(requests // 4, requests), self.c.get("resets", 1)))
        while self.numbered < requests or self.live or flight:
            drain = resets and self.numbered >= resets[0]
            if drain and (self.c.get("busy") or not self.live and not flight):
                resets.pop(0)
                self.reset()
                drain = False
            wanted = 0 if drain else self.rng.randint(0, 2)
            while self.numbered < requests and len(self.live) < most and wanted > 0:
                self.submit()
                wanted -= 1
            if self.live and self.rng.random() < self.c.get("aborts", 0.01):
                self.abort(self.rng.choice(list(self.live)))
            scheduled = False
            if self.live:
                flight.append(self.schedule())
                scheduled = flight[-1][0].total_num_scheduled_tokens > 0
            if flight and (len(flight) >= depth or not scheduled):
                self.execute(*flight.popleft())
            idle = 0 if scheduled or not self.live else idle + 1
            if idle > 50:
                raise RuntimeError(f"{self.name}: the scheduler does not move: {len(self.live)} requests")
        self.flush()

    def reset(self):
        """Of what is cached, with CPU memory or without."""
        if not self.memory:
            if not self.scheduler.reset_prefix_cache():
                raise RuntimeError("reset refused on an idle scheduler")
            self.lines += [{"reset": True}] if self.script else []
            return
        self.flush()
        too = self.rng.random() < 0.6
        self.scheduler.reset_prefix_cache(reset_connector=too)
        before = self.seq
        self.flush()
        self.lines.append({"reset": {"silent": too and self.seq == before and self.c["memory"]["by"] == CHUNKS}})

    def abort(self, request_id):
        self.scheduler.finish_requests(request_id, self.v.request.RequestStatus.FINISHED_ABORTED)
        self.remember(self.live.pop(request_id))
        self.lines += [{"abort": request_id}] if self.script else []

    # The header.

    def header(self):
        specs, groups = self.v.specs, []
        coordinator = self.manager.coordinator
        eagle = sorted(getattr(coordinator, "eagle_group_ids", ()) or ()) if self.c.get("spec") else []
        for g in self.kv.kv_cache_groups:
            s = g.kv_cache_spec
            one = {"kind": self.kind(s), "spec": type(s).__name__, "block_size": s.block_size, "layers": len(g.layer_names)}
            if isinstance(s, specs.SlidingWindowSpec):
                one["window"] = s.sliding_window
            if isinstance(s, specs.ChunkedLocalAttentionSpec):
                one["chunk"] = s.attention_chunk_size
            if getattr(g, "is_eagle_group", False):
                one["is_eagle_group"] = True
            if not getattr(s, "prefix_cacheable", True):
                one["prefix_cacheable"] = False
            groups.append(one)
        cache = self.settings.cache_config
        info = {k: str(x) for k, x in cache.metrics_info().items()} if hasattr(cache, "metrics_info") else {}
        return {
            "version": self.v.version, "config": self.name, "seed": self.seed,
            "hash_algo": self.c.get("algo", "sha256"), "hash_format": "bytes" if self.c.get("bytes") else "int",
            "none_hash": self.none_hash.hex(), "none_hash_seed": "vllm-none-hash (default)" if self.hash_seed is None else self.hash_seed,
            "salt_tag": self.v.number >= (0, 32), "block_size": cache.block_size, "hash_block_size": self.unit,
            "scheduler_block_size": self.scheduler_block,
            "partial_hash_hits": bool(getattr(coordinator, "enable_partial_hash_hits", False)),
            "groups": groups, "eagle": eagle, "num_speculative_tokens": self.c.get("spec", {}).get("tokens", 0),
            "retention": getattr(cache, "prefix_cache_retention_interval", None), "num_gpu_blocks": self.c["blocks"],
            "max_num_batched_tokens": self.c["batch"], "max_num_seqs": self.c.get("seqs", 16), "max_model_len": self.settings.model_config.max_model_len,
            "async_scheduling": self.asynchronous, "cache_config_info": info, "assume": self.assume(groups, eagle),
        }

    def kind(self, spec):
        s = self.v.specs
        for cls, kind in (
            (getattr(s, "SlidingWindowMLASpec", ()), "sliding_window_mla"), (s.SlidingWindowSpec, "sliding_window"),
            (s.ChunkedLocalAttentionSpec, "chunked_local_attention"), (s.MambaSpec, "mamba"),
            (s.MLAAttentionSpec, "mla_attention"), (s.FullAttentionSpec, "full_attention"),
        ):
            if cls and isinstance(spec, cls):
                return kind
        return type(spec).__name__

    def assume(self, groups, eagle):
        """What a predictor must be told, because events do not say it."""
        a = {"rule": "0.32" if self.v.number >= (0, 32) else self.v.version.rsplit(".", 1)[0]}
        if eagle:
            a["eagle"] = ",".join(map(str, eagle))
        if "unit" in self.c:
            a["unit"], a["block"] = self.unit, max(g["block_size"] for g in groups)
        for g in groups:
            if "chunk" in g:
                a["chunk"] = g["chunk"]
            if g.get("prefix_cacheable") is False:
                a["replay"] = g["window"]
        if self.c.get("report"):
            a["report_full"] = True
        return a


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--list", action="store_true", help="the configurations this vLLM supports")
    p.add_argument("--requests", type=int, default=300)
    p.add_argument("--script", action="store_true", help="say also what was done, for even seeds")
    p.add_argument("--into", metavar="DIR", help="write each capture to a file there, VERSION-NAME-sSEED.jsonl.gz")
    p.add_argument("captures", nargs="*", metavar="NAME:SEED")
    a = p.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints; standard output is for captures alone
    names = supported()
    if a.list:
        print("\n".join(names), file=out)
    v = Vllm() if a.captures else None
    for one in a.captures:
        name, _, seed = one.rpartition(":")
        if name not in names:
            sys.exit(f"scheduler.py: vLLM {v.version} has no {name}")
        if a.script and "memory" in CONFIGS[name]:
            sys.exit(f"scheduler.py: {one}: a script has no CPU memory")
        if a.script and int(seed) % 2:
            sys.exit(f"scheduler.py: {one}: a script has one batch in flight, so its seed is even")
        capture = Capture(v, name, int(seed), a.script)
        capture.run(a.requests)
        to = out
        if a.into:
            to = gzip.open(os.path.join(a.into, f"{v.version}-{name}-s{seed}.jsonl.gz"), "wt")
        for line in [capture.header(), *(line for line in capture.lines if "void" not in line)]:
            print(json.dumps(line, separators=(",", ":")), file=to)
        to.flush() if to is out else to.close()


if __name__ == "__main__":
    main()
