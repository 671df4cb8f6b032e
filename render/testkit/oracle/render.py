"""vLLM's own rendering of requests, of several models in one process, without
weights. The script calls the application of `vllm launch render` in process.

    render.py NAME=FOLDER [FLAG ...] -- NAME=FOLDER [FLAG ...] ...

Run it with the Python of an installed vLLM (scripts/install-vllm.sh). When all
models are ready it prints {"ready": VERSION, "urls": {NAME: URL}}: each model also
has a port of its own. A line {"model": NAME, "route": PATH, "body": TEXT} on the
input gives one line: {"ids": [[...], ...]}, or {"status": CODE, "says": TEXT} for a
request that vLLM refuses. "env" in a line sets variables first; the caller sets
VLLM_SYSTEM_START_DATE and TZ.
"""

import asyncio
import itertools
import json
import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["HF_HUB_OFFLINE"] = "1"

answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)  # keeps the output of libraries apart from the answers

import httpx  # noqa: E402
import uvicorn  # noqa: E402
from vllm import AsyncEngineArgs, __version__, envs  # noqa: E402
from vllm.config import VllmConfig  # noqa: E402
from vllm.entrypoints.launchers.app import build_app  # noqa: E402
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: E402
except ImportError:  # 0.33
    from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: E402
from vllm.entrypoints.launchers.render.app_state import init_render_app_state  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def say(answer):
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


async def server(folder, flags):
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", folder, "--served-model-name", "m", *flags])
    engine = AsyncEngineArgs.from_cli_args(args)
    model = engine.create_model_config()
    model.quantization = None
    envs.VLLM_CPU_KVCACHE_SPACE = 0
    config = VllmConfig(model_config=model, logging_config=engine.create_logging_config(),
                        structured_outputs_config=engine.create_structured_outputs_config())
    app = build_app(args, ("render",))
    await init_render_app_state(config, app.state, args)
    listening = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    serving = asyncio.create_task(listening.serve())
    while not listening.started:
        await asyncio.sleep(0.01)
    url = "http://127.0.0.1:%d" % listening.servers[0].sockets[0].getsockname()[1]
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app=app, raise_app_exceptions=False), base_url="http://render")
    return client, url, serving


async def answer(client, question):
    got = await client.post(question["route"] + "/render", content=question["body"].encode(),
                            headers={"content-type": "application/json"}, timeout=None)
    if got.status_code != 200:
        return {"status": got.status_code, "says": got.text[:2000]}
    prompts = got.json()
    return {"ids": [p["token_ids"] for p in (prompts if isinstance(prompts, list) else [prompts])]}


async def main():
    servers = {}
    for last, group in itertools.groupby(sys.argv[1:], lambda a: a == "--"):
        if last:
            continue
        named, *flags = group
        name, folder = named.split("=", 1)
        servers[name] = await server(folder, flags)
    say({"ready": __version__, "urls": {name: url for name, (_, url, _) in servers.items()}})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        question = json.loads(line)
        os.environ.update(question.get("env") or {})
        say(await answer(servers[question["model"]][0], question))
    os._exit(0)  # the process has nothing to save, and open ports


asyncio.run(main())
