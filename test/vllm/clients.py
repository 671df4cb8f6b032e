"""Drives the official OpenAI and Anthropic clients, one request at a time.

Arguments: the base address of the gateway and the model's name. Each line of
standard input is {"call", "id", "text", "answer"?, "more"?}: the request id to
send, the first user message, and for a second turn the first's answer and the
next message. Each is answered by a line {"text", "cached"} (cached: the
client's own reading of the usage, null where the answer gives none) or
{"error"}.
"""

import json
import sys

import anthropic
import openai

base, model = sys.argv[1:3]
oa = openai.OpenAI(base_url=base + "/v1", api_key="none", max_retries=0)
an = anthropic.Anthropic(base_url=base, api_key="none", max_retries=0)


def messages(r):
    out = [{"role": "user", "content": r["text"]}]
    if r.get("answer"):
        out += [{"role": "assistant", "content": r["answer"]}, {"role": "user", "content": r["more"]}]
    return out


def cached(usage, details):
    details = getattr(usage, details, None) if usage else None
    return details.cached_tokens if details else None


def chat(r, headers):
    a = oa.chat.completions.create(model=model, messages=messages(r), max_tokens=8, temperature=0, extra_headers=headers)
    return a.choices[0].message.content, cached(a.usage, "prompt_tokens_details")


def chat_stream(r, headers):
    text, usage = "", None
    for chunk in oa.chat.completions.create(model=model, messages=messages(r), max_tokens=8, temperature=0, stream=True,
                                            stream_options={"include_usage": True}, extra_headers=headers):
        usage = chunk.usage or usage
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    return text, cached(usage, "prompt_tokens_details")


def completion(r, headers):
    a = oa.completions.create(model=model, prompt=r["text"] + r.get("answer", ""), max_tokens=8, temperature=0, extra_headers=headers)
    return a.choices[0].text, cached(a.usage, "prompt_tokens_details")


def responses(r, headers):
    a = oa.responses.create(model=model, input=messages(r), max_output_tokens=16, temperature=0, extra_headers=headers)
    return a.output_text, cached(a.usage, "input_tokens_details")


def anthropic_messages(r, headers):
    a = an.messages.create(model=model, messages=messages(r), max_tokens=8, extra_body={"temperature": 0}, extra_headers=headers)
    return "".join(b.text for b in a.content if b.type == "text"), a.usage.cache_read_input_tokens


def anthropic_stream(r, headers):
    with an.messages.stream(model=model, messages=messages(r), max_tokens=8, extra_body={"temperature": 0}, extra_headers=headers) as s:
        a = s.get_final_message()
    return "".join(b.text for b in a.content if b.type == "text"), None


calls = {f.__name__: f for f in (chat, chat_stream, completion, responses, anthropic_messages, anthropic_stream)}
for line in sys.stdin:
    r = json.loads(line)
    try:
        text, n = calls[r["call"]](r, {"x-request-id": r["id"]})
        out = {"text": text, "cached": n}
    except Exception as e:
        out = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(out), flush=True)
