"""Writes what SGLang's own chat server renders: the texts that it encodes for the chats of a file
of package chattest, with a template.

    render.py CASES.json.gz TEMPLATE OUT.json.gz

No server runs: SGLang's serving_chat gets a stand-in for its tokenizer manager. Refused chats
have the status 400.
"""

import gzip
import json
import sys
from types import SimpleNamespace

from replicas import prepare_imports


class Tokenizer:
    """renders as transformers does, and encodes a text to itself"""

    bos_token_id = None

    def __init__(self, template):
        self.chat_template = template
        self.special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

    def apply_chat_template(self, messages, tokenize, add_generation_prompt, tools=None, return_dict=False, **kwargs):
        from transformers.utils.chat_template_utils import render_jinja_template

        rendered, _ = render_jinja_template(conversations=[messages], tools=tools, documents=None, chat_template=self.chat_template,
                                            add_generation_prompt=add_generation_prompt, **self.special, **kwargs)
        return self.encode(rendered[0]) if tokenize else rendered[0]

    def encode(self, text, **flags):
        return list(map(ord, text))

    def decode(self, ids, **flags):
        return "".join(map(chr, ids))


def server(template):
    from sglang.srt.entrypoints.openai import serving_chat
    from sglang.srt.parser import jinja_template_utils as templates

    serving_chat.get_serving = lambda: SimpleNamespace(default_chat_template_kwargs=None, trust_request_chat_template=False, allow_auto_truncate=False)
    serving_chat.get_model = lambda: SimpleNamespace(context_length=32768, revision=None)
    model = SimpleNamespace(hf_config=SimpleNamespace(model_type="qwen3", architectures=["Qwen3ForCausalLM"]), is_multimodal=False,
                            get_default_sampling_params=dict, context_len=32768)
    tokenizer_manager = SimpleNamespace(tokenizer=Tokenizer(template), model_config=model, served_model_name="m", model_path="m",
                                        config_value=lambda name: None, server_args=None)
    template_manager = SimpleNamespace(
        chat_template_name=None, python_chat_template=None, reasoning_config=None, force_reasoning=False,
        jinja_template_content_format=templates.detect_jinja_template_content_format(template),
        jinja_template_may_reorder_tool_results=templates.jinja_template_may_reorder_tool_results(template))
    return serving_chat.OpenAIServingChat(tokenizer_manager, template_manager)


def main():
    cases, template, out = sys.argv[1:]
    prepare_imports()
    from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
    from sglang.version import __version__

    chat = server(open(template).read())
    vectors = []
    for case in json.load(gzip.open(cases))["vectors"]:
        if case["path"] != "/v1/chat/completions":
            continue
        vector = {"path": case["path"], "body": case["body"], "status": 400}
        try:
            request = ChatCompletionRequest.model_validate_json(case["body"])
            problem = chat._validate_request(request)
            if not problem:
                ids = chat._process_messages(request, False).prompt_ids
                vector.update(status=200, text="".join(map(chr, ids)))
        except Exception as e:
            problem = f"{type(e).__name__}: {e}"
        if problem:
            print(f"{problem:.200}", file=sys.stderr)
        vectors.append(vector)
    with gzip.GzipFile(out, "wb", mtime=0) as f:
        f.write(json.dumps({"version": "sglang " + __version__, "vectors": vectors}, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
