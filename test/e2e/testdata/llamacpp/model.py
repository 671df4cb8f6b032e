"""Writes a tiny llama model with random weights as a GGUF file: argv[1]."""
import random, struct, sys

LAYERS, WIDTH, HEADS, FEED, CONTEXT, VOCAB = 2, 64, 4, 128, 8192, 258
U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5

def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b

def value(kind, v):
    if kind == STRING: return text(v)
    return struct.pack({U32: "<I", F32: "<f", I32: "<i"}[kind], v)

def pair(key, kind, v): return text(key) + struct.pack("<I", kind) + value(kind, v)
def many(key, kind, vs): return text(key) + struct.pack("<IIQ", ARRAY, kind, len(vs)) + b"".join(value(kind, v) for v in vs)

def letters():
    """GPT-2's letters of bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = (c for c in range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]

tokens = letters() + ["<s>", "</s>"]
pairs = [
    pair("general.architecture", STRING, "llama"),
    pair("llama.context_length", U32, CONTEXT), pair("llama.embedding_length", U32, WIDTH),
    pair("llama.block_count", U32, LAYERS), pair("llama.feed_forward_length", U32, FEED),
    pair("llama.attention.head_count", U32, HEADS), pair("llama.attention.head_count_kv", U32, HEADS),
    pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), pair("llama.rope.dimension_count", U32, WIDTH // HEADS),
    pair("tokenizer.ggml.model", STRING, "gpt2"), pair("tokenizer.ggml.pre", STRING, "gpt-2"),
    many("tokenizer.ggml.tokens", STRING, tokens), many("tokenizer.ggml.token_type", I32, [1] * 256 + [3, 3]),
    many("tokenizer.ggml.merges", STRING, []),
    pair("tokenizer.ggml.bos_token_id", U32, 256), pair("tokenizer.ggml.eos_token_id", U32, 257),
    pair("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "),
]
shapes = {"token_embd.weight": (WIDTH, VOCAB), "output_norm.weight": (WIDTH,), "output.weight": (WIDTH, VOCAB)}
for i in range(LAYERS):
    b = f"blk.{i}."
    shapes |= {b + "attn_norm.weight": (WIDTH,), b + "ffn_norm.weight": (WIDTH,)}
    shapes |= {b + n: (WIDTH, WIDTH) for n in ("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight")}
    shapes |= {b + "ffn_gate.weight": (WIDTH, FEED), b + "ffn_up.weight": (WIDTH, FEED), b + "ffn_down.weight": (FEED, WIDTH)}

rng, infos, data = random.Random(1), b"", b""
for name, shape in shapes.items():
    n = shape[0] * (shape[1] if len(shape) == 2 else 1)
    infos += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", 0, len(data))
    data += struct.pack(f"<{n}f", *([1.0] * n if len(shape) == 1 else [rng.gauss(0, 0.1) for _ in range(n)]))
head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(pairs)) + b"".join(pairs) + infos
with open(sys.argv[1], "wb") as f:
    f.write(head + b"\0" * (-len(head) % 32) + data)
