"""CPU memory behind the cache that scheduler.py drives.

vLLM's connectors decide in the scheduler's process what is copied to CPU memory
and what is loaded from there; a worker with a GPU only copies. Memory takes the
worker's part: it answers every step's orders, some of them steps later.
"""

from collections import deque

ALIGN = 4096  # OffloadingConnector rounds a chunk up to a page of memory


def memory(by, room, chunk=1, late=0, multi=False, **more):
    """by: the connector. room: how many chunks of so many blocks fit. late: the most steps that
    a copy takes beyond the first. more: further settings of the connector."""
    return {"by": by, "room": room, "chunk": chunk, "late": late, "multi": multi, "more": more}


class Memory:
    """One connector's CPU memory, and the copies that are on their way."""

    def __init__(self, c, rng):
        self.c, self.rng, self.step = c, rng, 0
        self.due = {}  # OffloadingConnector: the copy's number, the step of its end, and the request that waits for it
        self.unsent = []  # copies to CPU memory that begin with the next step
        self.loads, self.stores = deque(), deque()  # SimpleCPUOffloadConnector: they end in order

    def settings(self, config, kv):
        """A KVTransferConfig, for a cache whose size is known."""
        c = self.c
        block = kv.kv_cache_tensors[0].size // kv.num_blocks
        extra = {"cpu_bytes_to_use": c["room"] * block, **c["more"]}
        if c["by"] == "OffloadingConnector":
            extra["cpu_bytes_to_use"] = c["room"] * -(-block * c["chunk"] // ALIGN) * ALIGN
            extra["blocks_per_chunk"] = c["chunk"]
        name = c["by"]
        if c["multi"]:
            extra = {"connectors": [{"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}]}
            name = "MultiConnector"
        return config.KVTransferConfig(kv_connector=name, kv_role="kv_both", engine_id="engine", kv_connector_extra_config=extra)

    def run(self, orders):
        """What the worker returns for a step's orders: the copies that have ended."""
        from vllm.v1.outputs import KVConnectorOutput

        self.step += 1
        loaded = set()
        work = self.chunks if self.c["by"] == "OffloadingConnector" else self.blocks
        if not self.c["multi"]:
            done = work(orders, loaded)
        else:
            from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import MultiKVConnectorWorkerMetadata

            (one,) = orders.metadata
            done = work(one, loaded)
            done = MultiKVConnectorWorkerMetadata(metadata=(done,)) if done else None
        return KVConnectorOutput(finished_recving=loaded or None, kv_connector_worker_meta=done)

    def end(self):
        """The step with which a copy that begins now has ended."""
        return self.step + self.rng.randint(0, self.c["late"])

    def chunks(self, orders, loaded):
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata

        now = set(orders.jobs_to_flush or ())
        begin = self.unsent + [job for job in orders.store_jobs if job in now]
        self.unsent = [job for job in orders.store_jobs if job not in now]
        for job in begin:
            self.due[job] = (self.end(), None)
        for job, order in orders.load_jobs.items():
            self.due[job] = (self.end(), order.req_id)
        done = OffloadingWorkerMetadata()
        for job, (end, request) in list(self.due.items()):
            if end <= self.step or job in now:
                del self.due[job]
                done.mark_completed(job)
                if request is not None:
                    loaded.add(request)
        return done if done.completed_jobs else None

    def blocks(self, orders, loaded):
        from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

        for number, begun in ((orders.load_event, self.loads), (orders.store_event, self.stores)):
            if number >= 0:
                waiting = orders.load_event_to_reqs.get(number, ()) if begun is self.loads else ()
                begun.append((number, self.end(), waiting))
        ended = {}
        for begun in (self.loads, self.stores):
            while begun and (begun[0][1] <= self.step or orders.need_flush):
                number, _, waiting = begun.popleft()
                loaded.update(waiting)
                if begun is self.stores:
                    ended[number] = 1
        return SimpleCPUOffloadWorkerMetadata(completed_store_events=ended) if ended else None
