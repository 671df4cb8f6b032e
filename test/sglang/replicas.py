"""Serves requests by SGLang's own caches, without a model: each replica has SGLang's requests,
allocators, radix tree, publisher of KV events and answers about itself, behind HTTP. What
SGLang's scheduler does between them is written here: one request at a time is looked up,
loaded from the host, computed in chunks, decoded and released.

    replicas.py CONFIG,MODEL_FOLDER,HTTP_PORT,EVENT_PORT,REPLAY_PORT...

serves a model named CONFIG, and the adapter "adapter", on each HTTP_PORT, until it is
killed. Besides SGLang's routes there is /published, how many batches of events were published.
Run it with a Python that has torch, and SGLang's package on PYTHONPATH (scripts/install-vllm.sh).
Prompts are token ids; answers are decided by the prompt.
"""

import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
from array import array
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", SGLANG_LOG_LEVEL="ERROR")

CHUNK = 128  # tokens of a prompt that are computed at once
LONGEST = 1500
SLOTS = 8

# window: of a second group of layers; host: tokens of HiCache's part in the host's memory;
# publisher: the release whose publisher is run, and that the replica says it is.
CONFIGS = {
    "namespaces": {"page": 16, "pool": 3200, "format": "dynamo"},
    "pairs": {"page": 1, "pool": 1600, "eagle": True},
    "host": {"page": 16, "pool": 960, "host": 2880},
    "window": {"page": 16, "pool": 3200, "window": 128},
    "older": {"page": 16, "pool": 3200, "publisher": "0.5.21"},
}


# ---------------------------------------------------------------- imports


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """imports packages that SGLang names and that nothing here needs as mocks"""

    packages = ("IPython", "gguf")

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.packages:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        mock = MagicMock(name=spec.name)
        mock.__path__, mock.__spec__, mock.__name__, mock.__version__ = [], spec, spec.name, "99"
        return mock

    def exec_module(self, module):
        pass


def prepare_imports():
    from transformers.models.auto import configuration_auto

    known = configuration_auto._LazyConfigMapping.register  # a newer transformers has some of SGLang's models itself
    configuration_auto._LazyConfigMapping.register = lambda self, key, value, exist_ok=False: known(self, key, value, exist_ok=True)
    sys.meta_path.append(Stubs())


# ---------------------------------------------------------------- the engine


class Engine:
    """SGLang's caches, and the steps of its scheduler that touch them."""

    def __init__(self, config, args):
        import torch
        from sglang.srt.mem_cache import unified_radix_cache
        from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
        from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.events import KvEventLoraNames
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
        from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
        from sglang.srt.mem_cache.unified_cache.components import ComponentType

        self.torch, self.page, self.windows = torch, config["page"], "window" in config
        self.slots = ReqToTokenPool(size=SLOTS, max_context_len=LONGEST + 64, device="cpu", enable_memory_saver=False)
        same = {"dtype": torch.bfloat16, "device": "cpu"}
        heads = {"page_size": self.page, "head_num": 1, "head_dim": 2, **same}
        pool = config["pool"]
        components = [ComponentType.FULL]
        if self.windows:
            components.append(ComponentType.SWA)
            part = pool // 2 // self.page * self.page
            kv = SWAKVPool(size=pool, size_swa=part, swa_attention_layer_ids=[0], full_attention_layer_ids=[1], **heads)
            self.memory = SWATokenToKVPoolAllocator(size=pool, size_swa=part, page_size=self.page, kvcache=kv, need_sort=False, **same)
        else:
            kv = MHATokenToKVPool(size=pool, layer_num=1, enable_memory_saver=False, **heads)
            sizes = {"size": pool, "kvcache": kv, "need_sort": False, **same}
            self.memory = TokenToKVPoolAllocator(**sizes) if self.page == 1 else PagedTokenToKVPoolAllocator(page_size=self.page, **sizes)
        for allocator in (self.memory, getattr(self.memory, "full_attn_allocator", None), getattr(self.memory, "swa_attn_allocator", None)):
            if hasattr(allocator, "use_triton_kernels"):
                allocator.use_triton_kernels = False
        self.names = KvEventLoraNames()
        params = CacheInitParams(
            req_to_token_pool=self.slots, token_to_kv_pool_allocator=self.memory, page_size=self.page, disable=False,
            is_eagle=bool(config.get("eagle")), eviction_policy="lru", enable_kv_cache_events=True,
            dynamo_kv_event_format=config.get("format") == "dynamo", kv_event_lora_names=self.names,
            tree_components=tuple(components), sliding_window_size=config.get("window"), tree_core_backend=None)
        self.cache = unified_radix_cache.UnifiedRadixCache(params)
        self.host = "host" in config
        if self.host:
            copy_at_once(torch)
            self.cache.init_hicache(args, params)

    def serve(self, prompt, answer, salt, extra, lora):
        """computes a prompt, and returns how many of its tokens were cached"""
        request = self.admit(prompt, answer, salt, extra, lora)
        cached = request.prefix_len
        while not self.extend(request):
            request.refresh_fill_ids()
        for token in answer:
            if self.decode(request, token):
                break
        self.release(request)
        return cached

    def admit(self, prompt, answer, salt, extra, lora):
        """as the scheduler does for a waiting request"""
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams
        from sglang.srt.sampling.sampling_params import SamplingParams

        request = Req(
            rid=os.urandom(8).hex(), origin_input_text="", origin_input_ids=array("q", prompt),
            sampling_params=SamplingParams(temperature=0, max_new_tokens=len(answer)),
            lora_id=lora and hashlib.md5(lora.encode()).hexdigest(), extra_key=extra, cache_salt=salt)
        if lora:
            self.names.register(request, lora)
        if self.host:
            self.cache.check_hicache_events()
        request.init_next_round_input(self.cache)
        if request.needs_host_load_back():
            loaded, node = self.cache.init_load_back(InitLoadBackParams(
                best_match_node=request.best_match_node, host_hit_length=request.host_hit_length, req=request))
            request.host_loaded_length, request.last_node = loaded, node
            request.prefix_len += loaded
            request.kv.cache_protected_len = request.prefix_len
            self.cache.ready_to_load_host_cache()
        request.lock = self.cache.lock(request.last_node)
        return request

    def extend(self, request):
        """computes a chunk, and returns whether it was the last"""
        from sglang.srt.mem_cache.allocation import alloc_paged_token_slots_extend, alloc_req_slots, alloc_token_slots
        from sglang.srt.mem_cache.common import checkpoint_kv_cache

        torch = self.torch
        begin, whole = request.prefix_len, len(request.full_untruncated_fill_ids)
        end = min(begin + CHUNK, whole)
        request.extend_end = end
        if request.kv.holds_kv:
            held = self.slots.req_to_token[request.kv.req_pool_idx][:begin].to(torch.int64)
        else:
            held = self.cache.prefix_device_indices(request) if begin else torch.empty((0,), dtype=torch.int64)
            alloc_req_slots(self.slots, [request], self.cache)
        if self.page == 1:
            new = alloc_token_slots(self.cache, end - begin)
        else:
            new = alloc_paged_token_slots_extend(
                tree_cache=self.cache, prefix_lens=self.one(begin), prefix_lens_cpu=self.one(begin), seq_lens=self.one(end),
                seq_lens_cpu=self.one(end), last_loc=held[-1:] if begin else self.one(-1), extend_num_tokens=end - begin)
        row = request.kv.req_pool_idx
        self.slots.write((row, slice(0, begin)), held.to(torch.int32))
        self.slots.write((row, slice(begin, end)), new.to(torch.int32))
        request.kv.kv_allocated_len = request.kv.kv_committed_len = end
        checkpoint_kv_cache(request, self.cache)
        return end == whole

    def decode(self, request, token):
        """takes one token of the answer, and returns whether it was the last"""
        from sglang.srt.mem_cache.allocation import alloc_paged_token_slots_decode, alloc_token_slots

        request.output_ids.append(token)
        if len(request.output_ids) >= request.sampling_params.max_new_tokens:
            return True
        at, row = request.kv.kv_committed_len, request.kv.req_pool_idx
        if self.windows and request.decode_batch_idx >= 1:
            self.cache.evict_sliding_windows(request, at)
        if self.page == 1:
            new = alloc_token_slots(self.cache, 1)
        else:
            last = self.slots.req_to_token[row, at - 1 : at].to(self.torch.int64)
            new = alloc_paged_token_slots_decode(tree_cache=self.cache, seq_lens=self.one(at + 1), seq_lens_cpu=self.one(at + 1), last_loc=last)
        self.slots.write((row, slice(at, at + 1)), new.to(self.torch.int32))
        request.kv.kv_allocated_len += 1
        request.kv.kv_committed_len += 1
        request.decode_batch_idx += 1
        return False

    def release(self, request):
        from sglang.srt.managers.schedule_batch import FINISH_LENGTH
        from sglang.srt.mem_cache.common import release_kv_cache

        request.finished_reason = FINISH_LENGTH(length=len(request.output_ids))
        release_kv_cache(request, self.cache, checkpoint=True)
        if self.host:
            self.cache.check_hicache_events()

    def one(self, value):
        return self.torch.tensor([value], dtype=self.torch.int64)

    def flush(self):
        self.cache.reset()
        self.slots.clear()
        self.memory.clear()


def copy_at_once(torch):
    """replaces the copies between GPU and host: they end at the next look, and copy nothing"""
    import sglang.srt.managers.cache_controller as controller
    import sglang.srt.mem_cache.l2_transfer as transfer

    class Event:
        def __init__(self, *args, **more):
            pass

        record = synchronize = wait = wait_stream = wait_event = lambda self, *args, **more: None
        query = lambda self: True
        elapsed_time = lambda self, *args: 0.0

    done = lambda *args, **more: transfer.TransferCompletion(Event(), Event(), True)

    def load(self, transfers, *, transfer_layer_id_max, start_event=None, on_layer_done=None):
        for layer in range(transfer_layer_id_max):
            on_layer_done(layer)
        return done()

    transfer.device_module = controller.device_module = SimpleNamespace(
        __name__="none", Stream=Event, Event=Event, current_stream=lambda *args: Event(), stream=lambda s: contextlib.nullcontext())
    transfer.L2TransferEngine.submit_device_to_host = done
    transfer.L2TransferEngine.submit_host_to_device = load
    for name in [n for n in sys.modules if n.startswith("sglang.srt.mem_cache")]:
        for allocate in ("alloc_with_pin_memory", "alloc_with_host_register"):
            if hasattr(sys.modules[name], allocate):
                setattr(sys.modules[name], allocate, lambda dims, dtype, *args, **more: torch.empty(dims, dtype=dtype))


# ---------------------------------------------------------------- a replica


def publisher_of(release):
    """imports the publisher of KV events of another release, installed beside SGLang"""
    import sglang

    root = Path(sglang.__file__).parents[2] / f"sglang-{release}-publisher"
    spec = importlib.util.spec_from_file_location("publisher", root / "sglang/srt/disaggregation/kv_events.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Replica:
    """One engine, its publisher and what it says about itself."""

    def __init__(self, name, folder, events, replay):
        from sglang.srt.disaggregation import kv_events
        from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

        config = CONFIGS[name]
        publisher = {"publisher": "zmq", "topic": "kv", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}",
                     "format": config.get("format", "default")}
        flags = {"model_path": "dummy", "page_size": config["page"], "enable_cache_report": True, "kv_events_config": json.dumps(publisher)}
        if "host" in config:
            flags.update(enable_hierarchical_cache=True, hicache_write_policy="write_through", hicache_size=0,
                         hicache_ratio=config["host"] / config["pool"], hicache_io_backend="direct", hicache_mem_layout="layer_first")
        args = ServerArgs(**flags)
        set_global_server_args_for_scheduler(args)
        self.name, self.folder, self.config, self.args, self.lock = name, folder, config, args, threading.Lock()
        self.engine = Engine(config, args)
        self.release = config.get("publisher")
        self.events = publisher_of(self.release) if self.release else kv_events
        self.publisher = self.events.EventPublisherFactory.create(args.kv_events_config, 0)
        self.published = 0
        self.publish()

    def publish(self):
        events = self.engine.cache.take_events()
        if events:
            self.publisher.publish(self.events.KVEventBatch(ts=0.0, events=events))
            self.published += 1

    def info(self):
        from sglang.srt.runtime_context import describe_kv_events_publisher
        from sglang.version import __version__

        said = {name: getattr(self.args, name) for name in (
            "page_size", "dcp_size", "disable_radix_cache", "enable_hierarchical_cache", "hicache_write_policy", "enable_cache_report",
            "enable_metrics", "kv_events_config")}
        return {**said, "model_path": self.folder, "speculative_algorithm": "EAGLE" if self.config.get("eagle") else None,
                "version": self.release or __version__, "max_total_num_tokens": self.config["pool"], "kv_events": describe_kv_events_publisher(self.args)}

    def models(self):
        adapter = {"id": "adapter", "root": "/adapter", "parent": self.name, "owned_by": "sglang", "max_model_len": None}
        return {"data": [{"id": self.name, "root": self.name, "owned_by": "sglang", "max_model_len": LONGEST}, adapter]}

    def loads(self):
        from sglang.srt.entrypoints.v1_loads import _format_loads_prometheus
        from sglang.srt.managers.load_snapshot import LoadSnapshot

        used = self.config["pool"] - self.engine.memory.available_size()
        return _format_loads_prometheus([LoadSnapshot(num_used_tokens=used, token_usage=used / self.config["pool"])], {"core"}).body

    def complete(self, body):
        prompt, model = body["prompt"], body["model"]
        seed = hashlib.sha256(repr(prompt).encode()).digest()
        answer = [b % 16 for b in seed][: max(1, body.get("max_tokens", 4))]
        with self.lock:
            cached = self.engine.serve(prompt, answer, body.get("cache_salt"), body.get("extra_key"), self.adapter(body))
            self.publish()
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(answer), "total_tokens": len(prompt) + len(answer),
                 "prompt_tokens_details": {"cached_tokens": cached}}
        return {"id": seed.hex(), "object": "text_completion", "model": model, "usage": usage,
                "choices": [{"index": 0, "text": " ".join(map(str, answer)), "finish_reason": "length"}]}

    def adapter(self, body):
        """the adapter that SGLang finds in a request"""
        from sglang.srt.entrypoints.openai.serving_base import OpenAIServingBase

        serving = SimpleNamespace(tokenizer_manager=SimpleNamespace(served_model_name=self.name))
        serving._parse_model_parameter = lambda model: OpenAIServingBase._parse_model_parameter(serving, model)
        return OpenAIServingBase._resolve_lora_path(serving, body["model"], body.get("lora_path"))

    def flush(self, body):
        with self.lock:
            self.engine.flush()
            self.publish()
        return {}


def handler(replica):
    routes = {
        "GET": {"/ready": dict, "/server_info": replica.info, "/v1/models": replica.models, "/v1/loads": replica.loads,
                "/published": lambda: replica.published},
        "POST": {"/v1/completions": replica.complete, "/flush_cache": replica.flush},
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, *body):
            route = routes[self.command].get(self.path.split("?")[0])
            said = route(*body) if route else None
            text = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(200 if route else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self):
            self.answer()

        def do_POST(self):
            self.answer(json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}"))

        def log_message(self, *args):
            pass

    return Handler


def main():
    prepare_imports()
    import sglang.srt.managers.schedule_batch
    import sglang.srt.mem_cache.unified_radix_cache
    import torch

    torch.set_num_threads(1)
    for spec in sys.argv[1:]:
        name, folder, port, events, replay = spec.split(",")
        if os.fork() == 0:  # each has globals of SGLang's of its own, and the imports are shared
            replica = Replica(name, folder, int(events), int(replay))
            ThreadingHTTPServer(("127.0.0.1", int(port)), handler(replica)).serve_forever()
    for _ in sys.argv[1:]:
        os.wait()
        sys.exit("a replica has ended")


if __name__ == "__main__":
    main()
