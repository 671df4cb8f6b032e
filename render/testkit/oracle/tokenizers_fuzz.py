"""The reference tokenizer behind a pipe: one JSON request a line on standard
input, one JSON answer a line on standard output.

    {"op": "load", "name": N, "path": P}             -> {"ok": true}            a tokenizer.json
    {"op": "load", "name": N, "json": text}          -> {"ok": true} | {"error"}
    {"op": "encode", "name": N, "texts": [...], "special": bool}  -> {"ids": [[...]]}  null where the reference panics
    {"op": "split", "pattern": P, "texts": [...]}    -> {"matches": [[[start, end], ...]]}  byte offsets
    {"op": "time", "name": N, "text": T}             -> {"seconds": best of 5, "first": s, "tokens": n}
    {"op": "norm", "form": "NFC", "texts": [...]}    -> {"texts": [...]}
"""
import json
import sys
import time

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

loaded = {}


def encode(tok, text, special):
    try:
        return tok.encode(text, add_special_tokens=special).ids
    except Exception:
        raise
    except BaseException:  # its panics are no Exception
        return None


def answer(q):
    op = q["op"]
    if op == "load":
        tok = Tokenizer.from_file(q["path"]) if "path" in q else Tokenizer.from_str(q["json"])
        tok.no_truncation()
        tok.no_padding()
        loaded[q["name"]] = tok
        return {"ok": True}
    if op == "encode":
        tok = loaded[q["name"]]
        special = q.get("special", False)
        return {"ids": [encode(tok, t, special) for t in q["texts"]]}
    if op == "split":
        pre = pre_tokenizers.Split(Regex(q["pattern"]), "removed", invert=True)
        out = []
        for t in q["texts"]:
            at = [0]
            for c in t:
                at.append(at[-1] + len(c.encode()))
            out.append([[at[s], at[e]] for _, (s, e) in pre.pre_tokenize_str(t)])
        return {"matches": out}
    if op == "norm":
        form = getattr(normalizers, q["form"])()
        return {"texts": [form.normalize_str(t) for t in q["texts"]]}
    if op == "time":
        tok, text = loaded[q["name"]], q["text"]
        took = []
        for _ in range(5):
            start = time.perf_counter()
            n = len(tok.encode(text, add_special_tokens=False).ids)
            took.append(time.perf_counter() - start)
        return {"seconds": min(took), "first": took[0], "tokens": n}
    raise ValueError("unknown op " + op)


for line in sys.stdin:
    try:
        result = answer(json.loads(line))
    except BaseException as e:  # a panic of the reference is no Exception
        result = {"error": "%s: %s" % (type(e).__name__, e)}
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()
