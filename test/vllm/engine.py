"""Serves vLLM's own scheduler and KV cache manager as an engine of lab/simulator,
with no model and no worker.

    engine.py TOKENS BLOCK BATCH REQUESTS

TOKENS: of the KV cache, BLOCK: tokens of a block, BATCH and REQUESTS: at most in a step.
Run it as scheduler.py, whose tiny model it has. Standard input has a line for each step:

    {"abort": [id...] or null, "add": [{"id", "input", "output", "blocks": [number...]}...] or null}

with the requests that have come or left since the step before; a prompt is known by the
numbers of its full blocks. Standard output answers each with what the step was and how it ended:

    {"prompt": N, "answers": N, "running": N, "first": [id...], "done": [id...], "hits": {id: N},
     "stored": [number...], "removed": [number...], "waits": N, "runs": N, "usage": share}

prompt and answers are tokens; hits are of requests admitted for the first time; waits, runs
and usage are those after the step. Blocks of answers have no number.
"""

import json
import os
import sys

from scheduler import TINY, Vllm, config, full

UNKNOWN = 1 << 40  # numbers from here on are of answers' blocks


class Engine:
    def __init__(self, tokens, block, batch, requests):
        TINY["max_position_embeddings"] = tokens
        os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "1"
        v, self.block = Vllm(), block
        c = config([full(block)] * 2, tokens // block + 1, [], batch=batch, seqs=requests, longest=tokens)
        settings = v.settings(c, False)
        self.scheduler = v.scheduler(settings, *v.cache(settings, c))
        self.v, self.manager, self.unknown, self.hits, self.batches = v, self.scheduler.kv_cache_manager, UNKNOWN, {}, []
        self.scheduler.kv_event_publisher = self
        self.lookup = self.manager.get_computed_blocks
        self.manager.get_computed_blocks = self.looked_up

    # The publisher's part.

    def publish(self, batch):
        self.batches.append(batch)

    def shutdown(self):
        pass

    # The engine's part.

    def hasher(self, numbers):
        """The hashes of a request's new full blocks: their numbers."""

        def hashes(request):
            out = []
            for i in range(len(request.block_hashes), request.num_tokens // self.block):
                number = self.unknown if i >= len(numbers) else numbers[i]
                self.unknown += i >= len(numbers)
                out.append(number.to_bytes(32, "big"))
            return out

        return hashes

    def add(self, id, input, output, blocks):
        from vllm.sampling_params import SamplingParams

        params = SamplingParams(max_tokens=max(1, output), ignore_eos=True)
        self.scheduler.add_request(self.v.asked(
            request_id=str(id), prompt_token_ids=[0] * input, sampling_params=params, pooling_params=None,
            lora_request=None, cache_salt=None, block_hasher=self.hasher(blocks),
        ))

    def looked_up(self, request, *limit):
        found = self.lookup(request, *limit)
        if request.num_preemptions == 0:
            self.hits[request.request_id] = found[1]
        return found

    def step(self):
        from vllm.v1.outputs import ModelRunnerOutput

        s, self.hits, self.batches = self.scheduler, {}, []
        output = s.schedule()
        ids = list(output.num_scheduled_tokens)
        known, prompt, answers, ends = s.requests, 0, 0, set()
        for i in ids:
            n, r = output.num_scheduled_tokens[i], known[i]
            if r.num_computed_tokens >= r.num_tokens:
                ends.add(i)
            if n == 1 and r.num_output_tokens > 0 and i in ends:
                answers += 1
            else:
                prompt += n
        first = [int(i) for i in ids if i in ends and known[i].num_output_tokens == 0]
        done = []
        if ids:
            made = ModelRunnerOutput(
                req_ids=ids, req_id_to_index={r: k for k, r in enumerate(ids)}, sampled_token_ids=[[0] if i in ends else [] for i in ids],
                logprobs=None, prompt_logprobs_dict={}, pooler_output=[], kv_connector_output=None,
            )
            for core in s.update_from_output(output, made).values():
                done += [int(o.request_id) for o in core.outputs if o.finish_reason is not None]
        stored, removed = self.events()
        return {
            "prompt": prompt, "answers": answers, "running": len(ids), "first": first, "done": done,
            "hits": {i: n for i, n in self.hits.items() if i in output.num_scheduled_tokens},
            "stored": stored, "removed": removed, "waits": len(s.waiting), "runs": len(s.running), "usage": self.manager.usage,
        }

    def events(self):
        stored, removed = [], []
        batches = [b.events for b in self.batches] + [self.manager.take_events() or ()]
        for e in (e for b in batches for e in b):
            to = stored if type(e).__name__ == "BlockStored" else removed
            to += [n for n in e.block_hashes if n < UNKNOWN]
        return stored, removed

    def serve(self, lines, out):
        from vllm.v1.request import RequestStatus

        for line in lines:
            said = json.loads(line)
            for i in said["abort"] or ():
                self.scheduler.finish_requests(str(i), RequestStatus.FINISHED_ABORTED)
            for r in said["add"] or ():
                self.add(**r)
            print(json.dumps(self.step(), separators=(",", ":")), file=out, flush=True)


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    Engine(*map(int, sys.argv[1:])).serve(sys.stdin, out)


if __name__ == "__main__":
    main()
