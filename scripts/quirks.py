"""The corpus of the token ids that transformers and vLLM compute from a model's folder beyond tokenizer.json.

    quirks.py make FILE       in a venv with transformers 4, sentencepiece and protobuf: writes the
                              folders, and the ids of the slow and the fast tokenizers of 4
    quirks.py vllm FILE NAME  with the Python of an installed vLLM: adds under NAME the ids of vLLM's
                              own loading and of its renderer's call of the tokenizer
    quirks.py pack FILE OUT   writes the corpus that the tests read, compressed

scripts/quirks.sh runs all three. The script downloads nothing: it trains vocabularies on the
text below. Every row changes one thing in a folder that a publisher of its class could have
published.
"""

import copy
import gzip
import io
import json
import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "critical"

PROSE = """The quick brown fox jumps over the lazy dog and the dog sleeps. What was read yesterday is still warm today.
A router reads a prompt, finds its prefix and sends it where the prefix is cached. Don't they'll we've I'm it's.
def f(x): return x ** 2  # square of 12345 and 3.14159, 2026-11-22
Zürich, São Paulo, naïve café, Привет, как дела? 日本語のテキスト 한국어 שלום مرحبا हिन्दी
system user assistant tool hello world token tokens tokenizer space  two   three    four
"""

TEXTS = [
    "", " ", "  ", "hello", " hello", "  hello", "hello world", "hello  world ", "hello\nworld", "\n", "\n\n hello", "\thello",
    "Hello, WORLD! 12345 3.14", "don 't they 'll . , ? !", "it's I'm we've DON'T", "é e\u0301 ﬁ ｆｕｌｌ Å", "日本語 テキスト", "🙂 x",
    "<s>hello</s>", "a<s> b", "</s> b", "hello<|mark|>world", "hello <|mark|> world", "x<|mark|>  y", "<|word|>", "a<|word|>b", "a <|word|> b",
    "<|plain|>x", "HELLO<|Upper|>", "hello<|upper|>", "a\u2581b", "a\r\nb", "x  \n  y", "<0x41>", "1234567890", "A B C", "caféteria CAFÉ", "   ",
]


def added(content, id=None, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    token.update(flags)
    return token if id is None else {"id": id, **token}


# ---- make (transformers 4) -------------------------------------------------------------------


def byte_level(pre=None, normalizer=None, post=None, specials=("<|endoftext|>",)):
    """A byte-level BPE, as GPT-2's and all of its kind."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(PROSE.splitlines() * 3, trainers.BpeTrainer(
        vocab_size=500, special_tokens=list(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    file = json.loads(t.to_str())
    if pre is not None:
        file["pre_tokenizer"] = pre
    if normalizer is not None:
        file["normalizer"] = normalizer
    if post is not None:
        file["post_processor"] = post
    return file


def merges_files(file):
    model = file["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {"vocab.json": json.dumps(model["vocab"], ensure_ascii=False), "merges.txt": "#version: 0.2\n" + "\n".join(merges) + "\n"}


def sentencepiece(kind, **more):
    import sentencepiece as spm

    out = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(PROSE.splitlines() * 3), model_writer=out, model_type=kind, minloglevel=5,
                                   vocab_size=more.pop("vocab_size", 430), byte_fallback=kind == "bpe", character_coverage=1.0, hard_vocab_limit=False,
                                   num_threads=1, **more)
    return out.getvalue()


def converted(cls, model, **kwargs):
    """tokenizer.json as transformers 4 makes it of a sentencepiece model."""
    import transformers

    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "tokenizer.model")
        open(path, "wb").write(model)
        slow = getattr(transformers, cls)(path, **kwargs)
        return json.loads(transformers.convert_slow_tokenizer.convert_slow_tokenizer(slow).to_str())


def more_tokens(file, *tokens):
    file = copy.deepcopy(file)
    size = max(max(file["model"]["vocab"].values()), max([a["id"] for a in file["added_tokens"]] or [0])) + 1
    for i, token in enumerate(tokens):
        file["added_tokens"].append({**token, "id": size + i})
    return file


SPLIT = {"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"},
     "behavior": "Isolated", "invert": False},
    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}
DIGITS = copy.deepcopy(SPLIT)
DIGITS["pretokenizers"][0]["pattern"]["Regex"] = DIGITS["pretokenizers"][0]["pattern"]["Regex"].replace(r"|\p{N}|", r"|\p{N}{1,3}|")
NFC = {"type": "NFC"}


def bos_post(bos, id):
    return {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [id], "tokens": [bos]}}}


def rows():
    out = []

    def row(name, file, config, model=None, **files):
        out.append({"name": name, "files": {"tokenizer.json": json.dumps(file, ensure_ascii=False),
                                            "tokenizer_config.json": json.dumps(config), "config.json": json.dumps(model or {"model_type": "gpt2"}), **files}})

    gpt2 = byte_level()
    eot = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    config = {"tokenizer_class": "GPT2Tokenizer", **eot}
    row("GPT2", gpt2, config, **merges_files(gpt2))
    row("GPT2, class with Fast", gpt2, {**config, "tokenizer_class": "GPT2TokenizerFast"}, **merges_files(gpt2))
    row("GPT2, add_prefix_space", gpt2, {**config, "add_prefix_space": True}, **merges_files(gpt2))
    row("GPT2, add_prefix_space in the file alone", byte_level(pre={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}), config)
    row("GPT2, add_bos_token", gpt2, {**config, "add_bos_token": True}, **merges_files(gpt2))
    row("GPT2, add_eos_token", gpt2, {**config, "add_eos_token": True})
    row("GPT2, digits split (StarCoder)", byte_level(pre={"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}),
        config, {"model_type": "starcoder2"})
    row("GPT2, its own split, of no known model", byte_level(pre=SPLIT), config, {"model_type": "granite"})
    row("GPT2, clean_up_tokenization_spaces", gpt2, {**config, "clean_up_tokenization_spaces": True})
    row("CodeGen", gpt2, {**config, "tokenizer_class": "CodeGenTokenizer"}, {"model_type": "codegen"}, **merges_files(gpt2))
    row("CodeGen, add_prefix_space", gpt2, {**config, "tokenizer_class": "CodeGenTokenizer", "add_prefix_space": True}, {"model_type": "codegen"}, **merges_files(gpt2))
    qwen = byte_level(pre=SPLIT, normalizer=NFC, specials=("<|endoftext|>",))
    qc = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "unk_token": None, "bos_token": None,
          "add_prefix_space": False, "add_bos_token": False, "split_special_tokens": False, "errors": "replace"}
    row("Qwen2", qwen, qc, {"model_type": "qwen2"}, **merges_files(qwen))
    row("Qwen2, of qwen3", qwen, qc, {"model_type": "qwen3"}, **merges_files(qwen))
    row("Qwen2, another split in the file", byte_level(pre=DIGITS, normalizer=NFC), qc, {"model_type": "qwen3"})
    row("Qwen2, another split in the file, of a model not known", byte_level(pre=DIGITS, normalizer=NFC), qc, {"model_type": "mimo"})
    row("Qwen2, no normalizer in the file", byte_level(pre=SPLIT), qc, {"model_type": "qwen3"})
    row("Qwen2, add_prefix_space", qwen, {**qc, "add_prefix_space": True}, {"model_type": "qwen3"})
    row("GPTNeoX", gpt2, {**config, "tokenizer_class": "GPTNeoXTokenizer"}, {"model_type": "gpt_neox"})
    row("GPTNeoX, NFC (OLMo)", byte_level(normalizer=NFC), {**config, "tokenizer_class": "GPTNeoXTokenizer"}, {"model_type": "olmo2"})
    row("GPTNeoX, add_prefix_space", gpt2, {**config, "tokenizer_class": "GPTNeoXTokenizer", "add_prefix_space": True}, {"model_type": "gpt_neox"})
    row("Bloom", byte_level(pre=SPLIT), {**config, "tokenizer_class": "BloomTokenizerFast"}, {"model_type": "bloom"})
    row("Cohere", byte_level(pre=SPLIT, normalizer=NFC), {**config, "tokenizer_class": "CohereTokenizerFast"}, {"model_type": "cohere"})
    row("Roberta", byte_level(post={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False},
                              specials=("<s>", "<pad>", "</s>")),
        {"tokenizer_class": "RobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}, {"model_type": "roberta"})

    generic = {"tokenizer_class": "PreTrainedTokenizerFast", **eot}
    row("Generic", byte_level(pre=SPLIT), generic, {"model_type": "llama"})
    row("Generic, TokenizersBackend", byte_level(pre=SPLIT), {**generic, "tokenizer_class": "TokenizersBackend"}, {"model_type": "llama"})
    row("Generic, no class", byte_level(pre=SPLIT), eot, {"model_type": "llama"})
    row("Generic, bos in the file's template", byte_level(pre=SPLIT, post=bos_post("<|endoftext|>", 0)), generic, {"model_type": "llama"})
    row("Generic, bos in the template, add_bos_token false", byte_level(pre=SPLIT, post=bos_post("<|endoftext|>", 0)), {**generic, "add_bos_token": False}, {"model_type": "llama"})
    row("Generic, add_bos_token, no template", byte_level(pre=SPLIT), {**generic, "add_bos_token": True}, {"model_type": "llama"})
    none = byte_level(pre=SPLIT)
    none["post_processor"] = None
    row("Generic, add_bos_token, no post-processor", none, {**generic, "add_bos_token": True}, {"model_type": "llama"})
    row("Generic, add_eos_token, no post-processor", none, {**generic, "add_eos_token": True}, {"model_type": "llama"})
    row("Generic, no post-processor", none, generic, {"model_type": "llama"})
    row("Generic, split_special_tokens", byte_level(pre=SPLIT), {**generic, "split_special_tokens": True}, {"model_type": "llama"})
    row("Generic, add_prefix_space", byte_level(), {**generic, "add_prefix_space": True}, {"model_type": "llama"})
    row("Generic, clean_up_tokenization_spaces", byte_level(pre=SPLIT), {**generic, "clean_up_tokenization_spaces": True}, {"model_type": "llama"})
    row("Generic, Lowercase", byte_level(pre=SPLIT, normalizer={"type": "Lowercase"}), generic, {"model_type": "llama"})
    row("Generic, do_lower_case", byte_level(pre=SPLIT), {**generic, "do_lower_case": True}, {"model_type": "llama"})
    cut = byte_level(pre=SPLIT)
    cut["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    row("Generic, truncation in the file", cut, generic, {"model_type": "llama"})
    pad = byte_level(pre=SPLIT)
    pad["padding"] = {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    row("Generic, padding in the file", pad, {**generic, "pad_token": "<|endoftext|>"}, {"model_type": "llama"})

    def with_tokens(name, *tokens, base=None, config=None):
        file = more_tokens(base or byte_level(pre=SPLIT, normalizer={"type": "Replace", "pattern": {"String": "U"}, "content": "u"}), *tokens)
        row("Added tokens, " + name, file, {**generic, **(config or {})}, {"model_type": "llama"})

    with_tokens("lstrip", added("<|mark|>", lstrip=True))
    with_tokens("rstrip", added("<|mark|>", rstrip=True))
    with_tokens("both strips, not special", added("<|mark|>", lstrip=True, rstrip=True, special=False))
    with_tokens("single_word", added("<|word|>", single_word=True))
    with_tokens("normalized", added("<|Upper|>", normalized=True, special=False))
    with_tokens("not normalized", added("<|Upper|>", special=False))
    with_tokens("of other flags in the configuration", added("<|mark|>"),
                config={"added_tokens_decoder": {"501": added("<|mark|>", lstrip=True, rstrip=True)}})
    with_tokens("of the configuration alone", config={"added_tokens_decoder": {"500": added("<|mark|>", rstrip=True), "501": added("<|plain|>", special=False)}})
    with_tokens("additional_special_tokens", config={"additional_special_tokens": ["<|mark|>", "<|word|>"]})
    with_tokens("extra_special_tokens, a list", config={"extra_special_tokens": ["<|mark|>"]})
    with_tokens("extra_special_tokens, named", config={"extra_special_tokens": {"mark_token": "<|mark|>"}})
    with_tokens("named tokens as objects", config={"pad_token": {"__type": "AddedToken", **added("<|mark|>", lstrip=True)}})
    with_tokens("bos_token that nobody has", config={"bos_token": "<|word|>"})
    bare = more_tokens(byte_level(pre=SPLIT), added("<|mark|>"))
    row("Added tokens, special_tokens_map.json", bare, {"tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "llama"},
        **{"special_tokens_map.json": json.dumps({"bos_token": "<|endoftext|>", "pad_token": {**added("<|mark|>", rstrip=True)}, "additional_special_tokens": ["<|word|>"]})})

    import base64
    llama = sentencepiece("bpe")
    spm = {"tokenizer.model": base64.b64encode(llama).decode()}
    new, old = converted("LlamaTokenizer", llama, legacy=False), converted("LlamaTokenizer", llama, legacy=True)
    lc = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True, "add_eos_token": False,
          "clean_up_tokenization_spaces": False}
    for file, kind in ((old, "file of legacy"), (new, "file of not legacy")):
        for legacy in (True, False, None):
            c = dict(lc) if legacy is None else {**lc, "legacy": legacy}
            row(f"Llama, {kind}, legacy {legacy}", file, c, {"model_type": "llama"}, **spm)
    row("Llama, add_prefix_space false", old, {**lc, "legacy": False, "add_prefix_space": False}, {"model_type": "llama"}, **spm)
    row("Llama, add_prefix_space false in a file of its own", converted("LlamaTokenizer", llama, legacy=False, add_prefix_space=False),
        {**lc, "legacy": False, "add_prefix_space": False}, {"model_type": "llama"}, **spm)
    row("Llama, add_bos_token false", new, {**lc, "legacy": False, "add_bos_token": False}, {"model_type": "llama"}, **spm)
    row("Llama, add_eos_token", new, {**lc, "legacy": False, "add_eos_token": True}, {"model_type": "llama"}, **spm)
    row("Llama, of mistral", old, {**lc, "legacy": True}, {"model_type": "mistral"}, **spm)
    row("Llama, of phi3 with rstrip tokens", more_tokens(old, added("<|mark|>", rstrip=True), added("<|word|>", single_word=True)), {**lc, "legacy": False}, {"model_type": "phi3"}, **spm)
    row("Llama, added_tokens_decoder", new, {**lc, "legacy": False, "added_tokens_decoder": {
        "0": added("<unk>"), "1": added("<s>"), "2": added("</s>"), "430": added("<|mark|>", rstrip=True)}}, {"model_type": "llama"}, **spm)
    for kind in ("LlamaTokenizerFast", "LlamaTokenizer"):
        for model in ("deepseek_v3", "llama", "qwen2"):
            row(f"{kind}, byte-level file, of {model}", byte_level(pre=SPLIT, post=bos_post("<|endoftext|>", 0)), {**eot, "tokenizer_class": kind, "add_bos_token": True, "add_eos_token": False,
                "legacy": True}, {"model_type": model})
    first = copy.deepcopy(new)
    for scheme in ("always", "never", "first"):
        first = copy.deepcopy(new)
        first["normalizer"] = None
        first["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}
        row(f"Generic, Metaspace {scheme}", first, {**lc, "tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "llama"})
        first = copy.deepcopy(first)
        first["pre_tokenizer"]["split"] = True
        row(f"Generic, Metaspace {scheme}, split", first, {**lc, "tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "llama"})

    gemma_model = sentencepiece("bpe", add_dummy_prefix=False, remove_extra_whitespaces=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3)
    gemma = converted("GemmaTokenizer", gemma_model)
    gc = {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "add_bos_token": True, "add_eos_token": False}
    row("Gemma", gemma, gc, {"model_type": "gemma2"}, **{"tokenizer.model": base64.b64encode(gemma_model).decode()})
    row("Gemma, class with Fast, of gemma3", gemma, {**gc, "tokenizer_class": "GemmaTokenizerFast"}, {"model_type": "gemma3_text"})
    row("Gemma, add_bos_token false", gemma, {**gc, "add_bos_token": False}, {"model_type": "gemma2"})
    split = copy.deepcopy(gemma)
    split["normalizer"], split["pre_tokenizer"] = None, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": False}
    row("Gemma, Metaspace in the file", split, gc, {"model_type": "gemma2"})

    unigram = sentencepiece("unigram", vocab_size=250)
    u = {"tokenizer.model": base64.b64encode(unigram).decode()}
    for cls, model in (("T5Tokenizer", "t5"), ("AlbertTokenizer", "albert"), ("XLMRobertaTokenizer", "xlm-roberta"), ("CamembertTokenizer", "camembert"), ("XLNetTokenizer", "xlnet")):
        row(cls.removesuffix("Tokenizer"), converted(cls, unigram), {"tokenizer_class": cls}, {"model_type": model}, **u)
    piece = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "BertNormalizer", "clean_text": True,
             "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": None,
             "decoder": None, "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                                        "vocab": {w: i for i, w in enumerate(["[UNK]", "[CLS]", "[SEP]", "hello", "world", "##s"])}}}
    row("Bert", piece, {"tokenizer_class": "BertTokenizer", "unk_token": "[UNK]"}, {"model_type": "bert"})

    mistral = byte_level(pre=SPLIT)  # the check is for vocabularies of more than 100,000
    row("Mistral's regular expression, warned of", mistral, {**generic, "tokenizer_class": "PreTrainedTokenizerFast"}, {"model_type": "mistral", "transformers_version": "4.50.0"})
    row("Mistral's regular expression, fix_mistral_regex", mistral, {**generic, "fix_mistral_regex": True}, {"model_type": "mistral", "transformers_version": "4.50.0"})
    row("Mistral's regular expression, fix_mistral_regex, ByteLevel alone", byte_level(), {**generic, "fix_mistral_regex": True}, {"model_type": "mistral", "transformers_version": "4.50.0"})
    for r in out[-3:]:
        r["fill"] = 100_001
    return out


def folder(row, d, also=()):
    import base64
    for name, text in row["files"].items():
        if name == "tokenizer.json" and "fill" in row:
            file = json.loads(text)
            size = len(file["model"]["vocab"])
            file["added_tokens"] += [added(f"<SPECIAL_{i}>", i) for i in range(size, row["fill"])]
            text = json.dumps(file)
        if name == "tokenizer.model":
            if "slow" in also:
                open(os.path.join(d, name), "wb").write(base64.b64decode(text))
        else:
            open(os.path.join(d, name), "w", encoding="utf-8").write(text)
    if "slow" in also:
        os.remove(os.path.join(d, "tokenizer.json"))


def encoded(row, encoder, slow=False):
    """What an encoder, made of the row's folder, makes of the texts: with special tokens, and without."""
    with tempfile.TemporaryDirectory() as d:
        folder(row, d, ("slow",) if slow else ())
        try:
            name, encode = encoder(d)
            return {"class": name, "with": [encode(x, True) for x in TEXTS], "without": [encode(x, False) for x in TEXTS]}
        except BaseException as e:  # a Rust panic is none of Exception
            return {"error": type(e).__name__}


def transformers_encoder(**kwargs):
    def encoder(d):
        from transformers import AutoTokenizer

        t = AutoTokenizer.from_pretrained(d, **kwargs)
        return type(t).__name__, lambda text, special: t.encode(text, add_special_tokens=special)

    return encoder


def vllm_encoder(d):
    """The tokenizer as vLLM gets it for a model it generates with, called as its renderer calls
    it for a text completion (with special tokens) and for a rendered chat (without)."""
    from vllm import __version__
    from vllm.renderers.params import TokenizeParams
    from vllm.tokenizers import get_tokenizer

    t = get_tokenizer(d, tokenizer_mode="auto", runner_type="generate")
    mine = [c.__name__ for c in type(t).__mro__ if c.__module__.startswith("transformers")][0]
    called = t.encode if __version__.startswith("0.21.") else lambda text, **kwargs: t(text, **kwargs)["input_ids"]
    return mine, lambda text, special: list(called(text, **TokenizeParams(
        max_total_tokens=131072, max_output_tokens=16, add_special_tokens=special).get_encode_kwargs()))


def pack(list_, path):
    """Writes what the tests read: the models of tokenizer.json once, ids where they differ."""
    models = []
    for row in list_:
        for name in ("tokenizer.model", "vocab.json", "merges.txt"):
            row["files"].pop(name, None)
        file = json.loads(row["files"]["tokenizer.json"])
        if file["model"] not in models:
            models.append(file["model"])
        file["model"] = models.index(file["model"])
        row["files"]["tokenizer.json"] = json.dumps(file, ensure_ascii=False)
        for other in ("v4", "slow", "v0.21", "v0.21 of 4"):
            if other in row:
                same = all(row[other].get(k) == row["v0.32"].get(k) for k in ("with", "without"))
                if other.startswith("v4") or other == "slow":  # of these the corpus has only whether they are equal
                    row[other] = "equal" if same else row[other].get("error", "differs")
                elif same:
                    row[other] = {"equal": True}
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as f:
        for line in [{"texts": TEXTS, "models": models}, *list_]:
            f.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


def main(mode, file, *out):
    if mode == "make":
        list_ = rows()
        for row in list_:
            row["v4"] = encoded(row, transformers_encoder())
            if "tokenizer.model" in row["files"] or "vocab.json" in row["files"]:
                row["slow"] = encoded(row, transformers_encoder(use_fast=False), slow=True)
    else:
        list_ = json.load(open(file))
    if mode == "vllm":
        for row in list_:
            row[out[0]] = encoded(row, vllm_encoder)
    if mode == "pack":
        pack(list_, out[0])
        return
    json.dump(list_, open(file, "w"))


main(*sys.argv[1:])
