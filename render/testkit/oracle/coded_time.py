"""The time of the code that writes chats without a template: one JSON question a line on standard
input, one answer a line on standard output. It needs the Python of an installed vLLM 0.32.

    {"dialect": D, "file": F, "body": text} -> {"first": s, "seconds": best of 5, "ids": [...]}

The time is from the body's text to ids: JSON, the library's own objects, rendering, encoding. It
includes no part of the server. F is the tokenizer's file; gpt-oss needs none.
"""
import importlib.util
import json
import os
import sys
import time

made = {}


def harmony(_):
    from openai_harmony import (Conversation, HarmonyEncodingName, Message, ReasoningEffort, Role, SystemContent,
                                load_harmony_encoding)
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    system = SystemContent.new().with_reasoning_effort(ReasoningEffort.MEDIUM).with_conversation_start_date("2026-03-05")

    def message(m):
        out = Message.from_role_and_content(Role(m["role"]), m["content"])
        return out.with_channel("final") if m["role"] == "assistant" else out

    def ids(body):
        list = [Message.from_role_and_content(Role.SYSTEM, system)] + [message(m) for m in body["messages"]]
        return encoding.render_conversation_for_completion(Conversation.from_messages(list), Role.ASSISTANT)
    return ids


def mistral(file):
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
    tok = MistralTokenizer.from_file(file)
    return lambda body: tok.encode_chat_completion(ChatCompletionRequest(messages=body["messages"])).tokens


def deepseek(name, **options):
    def make(file):
        from tokenizers import Tokenizer
        import vllm  # for the path alone
        path = os.path.join(os.path.dirname(vllm.__file__), "tokenizers", name + ".py")
        spec = importlib.util.spec_from_file_location(name, path)
        code = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(code)
        tok = Tokenizer.from_file(file)
        return lambda body: tok.encode(code.encode_messages(body["messages"], **options), add_special_tokens=False).ids
    return make


DIALECTS = {
    "harmony": harmony, "mistral": mistral,
    "deepseek_v32": deepseek("deepseek_v32_encoding", thinking_mode="chat"),
    "deepseek_v4": deepseek("deepseek_v4_encoding", thinking_mode="thinking", reasoning_effort="high"),
    "deepseek_v41": deepseek("deepseek_v41_encoding", thinking_mode="thinking"),
}

for line in sys.stdin:
    try:
        q = json.loads(line)
        key = q["dialect"], q["file"]
        if key not in made:
            made[key] = DIALECTS[q["dialect"]](q["file"])
        took = []
        for _ in range(5):
            start = time.perf_counter()
            ids = made[key](json.loads(q["body"]))
            took.append(time.perf_counter() - start)
        result = {"first": took[0], "seconds": min(took), "ids": list(ids)}
    except BaseException as e:  # a panic of the reference is no Exception
        result = {"error": "%s: %s" % (type(e).__name__, e)}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
