"""What vLLM makes of a model's folder: which template renders a chat, with which special tokens, and which ids.

    PYTHONPATH=.cache/vllm/0.33.0-python .cache/vllm/0.32.0/bin/python render/testdata/folders.py render/testdata/folders.json

The folders are written here, and nothing is downloaded. Each row has the files of one; the tokenizer has a token for
each byte. An error is a chat that vLLM does not answer. Folders with which a server does not start are no rows.
"""

import json
import os
import sys
import tempfile
import types

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

CHAT = [{"role": "user", "content": "hi <b> <i> <m>"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]


def shown(name):
    return name + " [{{ bos_token }}|{{ eos_token }}|{{ image_token }}]{% for m in messages %}{{ m.content }}{% endfor %}{% if tools %} tools{% endif %}"


def letters():
    beyond, vocab = 256, {}
    for b in range(256):  # GPT-2's letters for bytes
        if b <= 32 or 0x7F <= b <= 0xA0 or b == 0xAD:
            vocab[chr(beyond)] = b
            beyond += 1
        else:
            vocab[chr(b)] = b
    return vocab


TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
             "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}, "decoder": None,
             "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                       "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": letters(), "merges": []}}
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}
TEXT = {"model_type": "llama"}
VISION = {"model_type": "qwen2_5_vl", "vision_config": {"depth": 1}}
PICTURES = {"preprocessor_config.json": {"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2_5_VLProcessor", "patch_size": 14}}
NAMED = [{"name": "default", "template": shown("default")}, {"name": "tool_use", "template": shown("tool_use")}]
ONE = {"chat_template": shown("config")}
JINJA = {"chat_template.jinja": shown("jinja")}
LEGACY = {"chat_template.json": {"chat_template": shown("legacy")}}
TOOL_FILE = {"additional_chat_templates/tool_use.jinja": shown("tool file")}
PROCESSOR = {"processor_config.json": {"processor_class": "Qwen2_5_VLProcessor", "chat_template": shown("processor")}}


def rows():
    def row(name, config, model=TEXT, **files):
        out.append((name, {"tokenizer.json": TOKENIZER, "tokenizer_config.json": {**CLASS, **config}, "config.json": model, **files}))

    out = []
    row("no template", {})
    row("configuration", ONE)
    row("jinja over the configuration", ONE, **JINJA)
    row("named", {"chat_template": NAMED})
    row("named, as an object", {"chat_template": {n["name"]: n["template"] for n in NAMED}})
    row("named, tool_use alone", {"chat_template": NAMED[1:]})
    row("named, default alone", {"chat_template": NAMED[:1]})
    row("named, neither", {"chat_template": [{"name": "rag", "template": shown("rag")}]})
    row("named, one name twice", {"chat_template": NAMED + [{"name": "default", "template": shown("second")}]})
    row("jinja over names", {"chat_template": NAMED}, **JINJA)
    row("jinja with a file for tools", ONE, **JINJA, **TOOL_FILE)
    row("a file for tools over the configuration", ONE, **TOOL_FILE)
    row("a file for tools over names", {"chat_template": NAMED}, **TOOL_FILE)
    row("files default.jinja and chat_template.jinja", ONE, **JINJA, **{"additional_chat_templates/default.jinja": shown("default file")})
    row("a file of another name", ONE, **{"additional_chat_templates/rag.jinja": shown("rag")})
    row("text, legacy file", ONE, **LEGACY)
    row("text, legacy file alone", {}, **LEGACY)
    row("text, legacy file and jinja", ONE, **LEGACY, **JINJA)
    row("text, processor's file", ONE, **{"processor_config.json": {"chat_template": shown("processor")}})
    row("text, named a processor that cannot be loaded", {**ONE, "processor_class": "Qwen2_5_VLProcessor"}, **LEGACY)
    row("vision, configuration", ONE, VISION, **PICTURES)
    row("vision, legacy file", ONE, VISION, **PICTURES, **LEGACY)
    row("vision, legacy file alone", {}, VISION, **PICTURES, **LEGACY)
    row("vision, legacy file and jinja", ONE, VISION, **PICTURES, **LEGACY, **JINJA)
    row("vision, legacy file and a file for tools", ONE, VISION, **PICTURES, **LEGACY, **TOOL_FILE)
    row("vision, legacy file and names", {"chat_template": NAMED}, VISION, **PICTURES, **LEGACY)
    row("vision, legacy file of null", ONE, VISION, **PICTURES, **{"chat_template.json": {"chat_template": None}})
    row("vision, legacy file without a template", ONE, VISION, **PICTURES, **{"chat_template.json": {}})
    row("vision, legacy file that is no JSON", ONE, VISION, **PICTURES, **{"chat_template.json": "{"})
    row("vision, legacy file of names", ONE, VISION, **PICTURES, **{"chat_template.json": {"chat_template": NAMED}})
    row("vision, processor's file", ONE, VISION, **PICTURES, **PROCESSOR)
    row("vision, processor's file and legacy file", ONE, VISION, **PICTURES, **PROCESSOR, **LEGACY)
    row("vision, processor's file of null", ONE, VISION, **PICTURES, **{"processor_config.json": {"processor_class": "Qwen2_5_VLProcessor", "chat_template": None}}, **LEGACY)
    row("vision, processor's file over jinja", ONE, VISION, **PICTURES, **PROCESSOR, **JINJA)
    row("vision, jinja", ONE, VISION, **PICTURES, **JINJA)
    row("vision, jinja with a file for tools", ONE, VISION, **PICTURES, **JINJA, **TOOL_FILE)
    row("vision, a file for tools alone", ONE, VISION, **PICTURES, **TOOL_FILE)
    row("vision, names", {"chat_template": NAMED}, VISION, **PICTURES)
    row("a class named, of a model without vision", {**ONE, "processor_class": "Qwen2_5_VLProcessor"}, **PICTURES, **LEGACY)

    def special(name, config, map_, **files):
        row("special tokens, " + name, {**ONE, **config}, **{"special_tokens_map.json": map_}, **files)

    both = {"bos_token": "<b>", "eos_token": "</s>"}
    special("of the map alone", {}, {"bos_token": "<m>"})
    special("map over configuration", both, {"bos_token": "<m>"})
    special("empty in the map", both, {"bos_token": ""})
    special("null in the map", both, {"bos_token": None})
    special("objects in the map", both, {"bos_token": {"content": "<m>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False},
                                         "eos_token": {"content": "", "special": False}})
    special("object in the configuration", {"bos_token": {"__type": "AddedToken", "content": "<b>", "lstrip": True}}, {"bos_token": "<m>"})
    special("empty in the configuration", {"bos_token": ""}, {"eos_token": "<m>"})
    special("map beside a decoder", {**both, "added_tokens_decoder": {"300": {"content": "<b>", "special": True, "normalized": False}}}, {"bos_token": "<m>"})
    special("map beside an empty decoder", {**both, "added_tokens_decoder": {}}, {"bos_token": "<m>"})
    special("of the model", {**both, "image_token": "<i>"}, {"image_token": "<m>"})
    special("of the model, in the map alone", both, {"image_token": "<m>"})
    special("of the model, an object in the map", {**both, "image_token": "<i>"}, {"image_token": {"content": "<m>"}})
    special("additional in both", {"additional_special_tokens": ["<b>"]}, {"additional_special_tokens": ["<m>", {"content": "<i>", "lstrip": True}]})
    special("additional in the map", both, {"additional_special_tokens": ["<m>"]})
    special("extra in both", {"extra_special_tokens": ["<b>"]}, {"extra_special_tokens": ["<m>", {"content": "<i>", "lstrip": True}]})
    special("extra named in the map", {"extra_special_tokens": {"image_token": "<i>"}}, {"extra_special_tokens": {"image_token": "<m>"}})
    special("extra named, a list in the map", {"extra_special_tokens": {"image_token": "<i>"}}, {"extra_special_tokens": ["<m>"]})
    special("extra named, the name in the map", {"extra_special_tokens": {"image_token": "<i>"}}, {"image_token": "<m>"})
    special("of the model, extra named in the map", {"image_token": "<i>"}, {"extra_special_tokens": {"image_token": "<m>"}})
    special("extra named over a common name", {**both, "image_token": "<i>", "extra_special_tokens": {"bos_token": "<m>", "image_token": "<b>"}}, {})
    special("additional, and extra in the map", {"additional_special_tokens": ["<b>"]}, {"extra_special_tokens": ["<m>"]})
    special("extra, and additional in the map", {"extra_special_tokens": ["<b>"]}, {"additional_special_tokens": ["<m>"]})
    special("no list in the map", {"additional_special_tokens": ["<b>"]}, {"additional_special_tokens": None})
    special("the map is empty", both, {})
    special("added_tokens.json", both, {"bos_token": "<m>"}, **{"added_tokens.json": {"<i>": 256, "<m>": 257}})
    special("no configuration", {}, {"bos_token": "<m>"})
    del out[-1][1]["tokenizer_config.json"]
    out[-1][1].update(JINJA)
    return out


def write(d, files):
    for name, content in files.items():
        path = os.path.join(d, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))


def answer(d, files, tools):
    from vllm.renderers import hf
    from vllm.tokenizers import get_tokenizer

    try:
        tokenizer = get_tokenizer(d, tokenizer_mode="auto", runner_type="generate")
    except Exception as e:
        return {"error": "load: " + type(e).__name__}
    model = types.SimpleNamespace(model=d, tokenizer=d, revision=None, tokenizer_revision=None, code_revision=None, trust_remote_code=False,
                                  hf_config=types.SimpleNamespace(model_type=files["config.json"]["model_type"]))
    try:
        text = hf.safe_apply_chat_template(model, tokenizer, CHAT, tools=tools, tokenize=False)
        return {"text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]}
    except Exception as e:
        return {"error": type(e).__name__}


out = []
for name, files in rows():
    with tempfile.TemporaryDirectory() as d:
        write(d, files)
        result = {"name": name, "plain": answer(d, files, None), "tools": answer(d, files, TOOLS)}
    out.append({**result, "files": {n: c for n, c in files.items() if n != "tokenizer.json"}})
with open(sys.argv[1], "w") as f:
    f.write('{"tokenizer": %s,\n"rows": [\n%s\n]}\n' % (json.dumps(TOKENIZER, ensure_ascii=False), ",\n".join(json.dumps(r, ensure_ascii=False) for r in out)))
