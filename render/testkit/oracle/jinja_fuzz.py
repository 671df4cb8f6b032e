"""The reference Jinja2 behind a pipe: one JSON request a line on standard
input, one JSON answer a line on standard output.

    {"op": "conversations", "seed": S, "count": N, "templates": [path, ...]}
        -> {"cases": [{"template": index, "vars": JSON text, "text": T | "error": E}]}
    {"op": "snippets", "seed": S, "count": N}
        -> {"cases": [{"source": text, "vars": JSON text, "text": T | "error": E}]}
    {"op": "render", "cases": [{"source", "vars"}]}  -> {"cases": [...]}
    {"op": "queries", "templates": [text, ...]}      -> {"queries": [{"undeclared": [names]}]}
    {"op": "time", "source": text, "vars": JSON text} -> {"seconds": best of 5}

The environment is the one that transformers builds for apply_chat_template.
Cases are random, but depend on their seed alone.
"""
import json
import random
import resource
import sys
import time
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2026, 3, 5, 7, 8, 9)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))  # huge repetitions raise MemoryError instead of swapping
sys.setrecursionlimit(1000)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_generation_support"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _generation_support(self, context, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    return env


ENV = environment()

# ---- random values -------------------------------------------------------

TEXTS = [
    "", "a", "Hello, world!", "  padded \n", "line one\nline two\r\n\nline four\n", "<b>&'\"</b>", "{{ x }} {% raw %}", "%s %d %%", "{} {0} {a}",
    "São Paulo 北京 🙂", "ﬁnal Σίσυφος ΟΔΟΣ", "İstanbul straße ŉ ǆ", "\t\u00a0x\u2003\u2028y\x1c", "None", "True", "123", " 42 ", "-7", "1e3", "3.14", "0x1f", "inf",
    "<think>\nplan\n</think>\n\nanswer", "<think>open", "</think>", "tool_call", "user", "a-b_c.d/e?f=g&h", "one two  three", "x" * 90, "a,b,c", "AbC dEf", "'quoted'", "\\n\\", "\x00\x7f",
]
KEYS = ["role", "content", "name", "type", "a", "b", "items", "values", "x y", "", "ключ", "text", "zeta", "1", "get"]


def number(r):
    return r.choice([0, 1, -1, 2, 3, 5, 7, 10, -3, 255, 10**4, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**22, 0.0, -0.0, 0.5, 1.0, -2.5, 1e-7, 1e16, 123456.789, 2.675, 1e22, 1e100])


def value(r, depth=0):
    k = r.random()
    if k < 0.35 or depth > 3:
        return r.choice(TEXTS)
    if k < 0.5:
        return number(r)
    if k < 0.58:
        return r.choice([True, False, None])
    if k < 0.78:
        return [value(r, depth + 1) for _ in range(r.randrange(5))]
    return {k: value(r, depth + 1) for k in r.sample(KEYS, r.randrange(5))}


# ---- random conversations ------------------------------------------------

WORDS = ["the", "weather", "in", "Paris", "is", "Tokyo", "please", "call", "<|im_end|>", "🙂", "北京", "\n", "\n\n", "code:", "```py\nx = 1\n```", "a<b & c>d", '"quoted"', "it's", "<think>", "</think>", "1.0", "[INST]", "  ", "\t"]


def words(r, most=25):
    return " ".join(r.choice(WORDS) for _ in range(r.randrange(most)))


def content(r):
    k = r.random()
    if k < 0.7:
        return words(r)
    if k < 0.78:
        return r.choice(TEXTS)
    if k < 0.92:
        return [part(r) for _ in range(r.randrange(4))]
    return r.choice([None, "", {}, 7, 1.5, True, {"text": "x"}])


def part(r):
    k = r.random()
    if k < 0.8:
        return {"type": "text", "text": words(r)}
    return r.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}, {"type": "video"}, {"text": "no type"}, "bare"])


def schema(r, depth=0):
    k = r.random()
    if depth > 2 or k < 0.6:
        out = {"type": r.choice(["string", "integer", "number", "boolean", "array", ["integer", "null"], ["string", "number"]])}
        if r.random() < 0.5:
            out["description"] = words(r, 8)
        if r.random() < 0.2:
            out["enum"] = [value(r, 3) for _ in range(r.randrange(4))]
        if r.random() < 0.3:
            out["default"] = number(r)
        if out["type"] == "array" and r.random() < 0.7:
            out["items"] = schema(r, depth + 1)
        return out
    if k < 0.7:
        return {r.choice(["anyOf", "oneOf", "allOf"]): [schema(r, depth + 1) for _ in range(r.randrange(1, 4))]}
    if k < 0.75:
        return {"$ref": "#/$defs/T"}
    props = {f"p{i}": schema(r, depth + 1) for i in range(r.randrange(4))}
    out = {"type": "object", "properties": props}
    if r.random() < 0.6:
        out["required"] = list(props)[: r.randrange(3)]
    if r.random() < 0.3:
        out["additionalProperties"] = r.choice([True, False, {"type": "string"}])
    return out


def tool(r):
    fn = {"name": r.choice(["get_weather", "search", "f", "naïve-tool"])}
    if r.random() < 0.9:
        fn["description"] = r.choice([words(r, 12), "", None])
    if r.random() < 0.9:
        fn["parameters"] = r.choice([None, {}, schema(r), {"type": "object", "properties": {"q": schema(r), "n": schema(r)}, "required": ["q"]}])
    if r.random() < 0.15:
        fn["return"] = schema(r)
    return {"type": "function", "function": fn} if r.random() < 0.93 else fn


def arguments(r):
    args = {r.choice(["location", "q", "n", "opts", "ключ"]): value(r, 2) for _ in range(r.randrange(4))}
    return args if r.random() < 0.85 else json.dumps(args, ensure_ascii=False)


def message(r):
    role = r.choices(["user", "assistant", "tool", "system", "developer", "ipython"], [10, 9, 4, 1, 0.5, 0.2])[0]
    m = {"role": role}
    if r.random() < 0.97:
        m["content"] = content(r)
    if role == "assistant":
        if r.random() < 0.35:
            m["tool_calls"] = [{"id": r.choice(["call_12345", "abcdefghi", "x"]), "type": "function", "function": {"name": r.choice(["get_weather", "search"]), "arguments": arguments(r)}} for _ in range(r.randrange(1, 3))]
        if r.random() < 0.2:
            m[r.choice(["reasoning_content", "reasoning", "thinking"])] = words(r)
    if role == "tool":
        m["tool_call_id"] = r.choice(["call_12345", "abcdefghi"])
        if r.random() < 0.5:
            m["name"] = "get_weather"
    return m


def conversation(r):
    messages = []
    if r.random() < 0.35:
        messages.append({"role": "system", "content": content(r) if r.random() < 0.3 else words(r)})
    if r.random() < 0.6:  # in order, as real ones are
        for _ in range(r.randrange(1, 4)):
            messages.append({"role": "user", "content": content(r)})
            if r.random() < 0.8:
                a = message(r)
                a["role"] = "assistant"
                messages.append(a)
                if a.get("tool_calls"):
                    messages.append({"role": "tool", "tool_call_id": a["tool_calls"][0]["id"], "content": words(r)})
    else:
        messages += [message(r) for _ in range(r.randrange(6))]
    out = {"messages": messages, "tools": [tool(r) for _ in range(r.randrange(1, 4))] if r.random() < 0.45 else None, "documents": None}
    out["add_generation_prompt"] = r.random() < 0.6
    out["bos_token"], out["eos_token"] = "<BOS>", "<EOS>"
    kwargs = {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "medium", "high", "none"], "date_string": ["26 Jul 2024"], "builtin_tools": [["python"], []],
              "tools_in_user_message": [True, False], "custom_tools": [[tool(r)]], "model_identity": [words(r)], "preserve_thinking": [True, False], "keep_past_thinking": [True], "strict": [True], "thinking_budget": [0, 512, 1000], "json_mode": [True]}
    for k in r.sample(sorted(kwargs), r.choices([0, 1, 2, 4], [5, 3, 2, 1])[0]):
        out[k] = r.choice(kwargs[k])
    if r.random() < 0.05:
        out["documents"] = [{"title": words(r, 4), "text": words(r)} for _ in range(r.randrange(3))]
    return out


# ---- random snippets -----------------------------------------------------

NAMES = ["s", "t", "n", "m", "f", "l", "d", "dl", "u", "b", "z", "nope"]
FILTERS0 = """abs capitalize center count default dictsort escape e first float forceescape int items join last length list lower max min pprint
 reverse round safe select sort string striptags title trim tojson unique upper urlencode urlize wordcount xmlattr filesizeformat sum reject""".split()
METHODS = {
    "": "upper lower title capitalize casefold swapcase strip lstrip rstrip split rsplit splitlines isalpha isdigit isspace isupper islower istitle isalnum isnumeric isdecimal isidentifier isprintable isascii".split(),
    "str": "strip lstrip rstrip split rsplit find rfind index rindex count startswith endswith partition rpartition removeprefix removesuffix join".split(),
    "int": "center ljust rjust zfill expandtabs".split(),
}
TESTS = "defined undefined none boolean false true integer float lower upper string mapping number sequence iterable callable escaped odd even".split()


class Snippets:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = list(NAMES)

    def lit(self):
        r = self.r
        k = r.random()
        if k < 0.4:
            t = r.choice(["", "a", "b", ", ", "x y", "-", "\\n", "é", "%s", "%5.1f|%-4s", "{}-{}", "{0!r:>5}", "role", "A", "%(a)s", "1", " ", "{a[0]}", "{:,}", "{:+.3e}", "%x", "<x>"])
            return "'" + t + "'"
        if k < 0.75:
            return r.choice(["0", "1", "2", "3", "-1", "10", "1.5", "2.0", "0.1", "1e3", "100", "1_000", "0x10", "12345678901234567890", "7", "-2"])
        return r.choice(["true", "false", "none", "[]", "{}", "()", "(1,)", "[1, 2, 3]", "{'a': 1, 'b': [2]}", "['b', 'A', 'c']", "{1: 'x', none: 2}", "(1, 'a')"])

    def small(self):
        return self.r.choice(["0", "1", "2", "3", "-1", "-2", "5", "20", "n", "true", "none", "nope", "'2'", "1.0"])

    def args(self, d, most=2):
        return ", ".join(self.expr(min(d, 1)) for _ in range(self.r.randrange(most + 1)))

    def expr(self, depth=3):
        r = self.r
        if depth <= 0 or r.random() < 0.15:
            return r.choice(self.names) if r.random() < 0.6 else self.lit()
        d = depth - 1
        k = r.randrange(16)
        if k == 0:
            return f"({self.expr(d)} {r.choice(['+', '-', '*', '/', '//', '%', '~', '+', '~'])} {self.expr(d) if r.random() < 0.6 else self.small()})"
        if k == 1:
            return f"({self.expr(d)} {r.choice(['==', '!=', '<', '<=', '>', '>=', 'in', 'not in', 'and', 'or'])} {self.expr(d)})"
        if k == 2:
            return f"({self.small()} < {self.expr(d)} {r.choice(['<', '==', 'in'])} {self.expr(d)})"
        if k == 3:
            return f"({self.expr(d)} if {self.expr(d)}" + (f" else {self.expr(d)})" if r.random() < 0.8 else ")")
        if k == 4:
            return f"{r.choice(['not ', '-', '+'])}{self.expr(d)}"
        if k == 5:
            return f"{self.atom(d)}[{self.small() if r.random() < 0.6 else self.expr(d)}]"
        if k == 6:
            parts = [self.small() if r.random() < 0.6 else "" for _ in range(r.choice([2, 2, 3]))]
            return f"{self.atom(d)}[{':'.join(parts)}]"
        if k == 7:
            return f"{self.atom(d)}.{r.choice(['a', 'b', 'role', 'content', 'items', 'x', 'upper', 'keys', '__class__', 'get', '0', 'real', 'start', 'append', '_x'])}"
        if k in (8, 9):
            return self.method(d)
        if k in (10, 11, 12):
            return self.filter(d)
        if k == 13:
            return self.test(d)
        if k == 14:
            return r.choice([f"[{self.args(d, 3)}]", f"({self.expr(d)}, {self.expr(d)})", "{" + f"'k': {self.expr(d)}, {self.lit()}: {self.expr(d)}" + "}"])
        return r.choice([f"range({self.small()})", f"range({self.small()}, {self.small()}, {self.small()})", f"dict(a={self.expr(d)}, b=2)", f"dict({self.expr(d)})", "namespace(x=1).x", f"'%s|%r' % ({self.expr(d)}, {self.expr(d)})", f"{self.lit()} % {self.expr(d)}", "strftime_now('%d %b %Y %H:%M')", f"({self.small()} ** {r.choice(['2', '3', '0', '-1', '0.5'])})"])

    def atom(self, d):
        e = self.expr(d)
        return e if e in self.names or e[0] in "([{" else f"({e})"

    def method(self, d):
        r = self.r
        o = self.atom(d)
        k = r.random()
        if k < 0.35:
            return f"{o}.{r.choice(METHODS[''])}()"
        if k < 0.6:
            return f"{o}.{r.choice(METHODS['str'])}({self.expr(min(d, 1))})"
        if k < 0.68:
            return f"{o}.{r.choice(METHODS['int'])}({self.small()})"
        return r.choice([f"{o}.get({self.expr(min(d, 1))})", f"{o}.get({self.expr(min(d, 1))}, {self.expr(min(d, 1))})", f"{o}.items()", f"{o}.keys()|list", f"{o}.values()|list", f"{o}.replace({self.expr(min(d, 1))}, {self.expr(min(d, 1))})",
                         f"{o}.replace('a', 'bb', {self.small()})", f"{o}.split({self.expr(min(d, 1))}, {self.small()})", f"{o}.format({self.args(d)})", f"{o}.format(a={self.expr(min(d, 1))})", f"{o}.join({self.expr(min(d, 1))})",
                         f"{o}.count({self.expr(min(d, 1))})", f"{o}.index({self.expr(min(d, 1))})", f"{o}.copy()", f"{o}.startswith(('a', 'H'))", f"{o}.splitlines(true)", f"{o}.find('a', {self.small()}, {self.small()})", f"{o}.rsplit(none, {self.small()})", f"{o}.split(maxsplit={self.small()})"])

    def filter(self, d):
        r = self.r
        o = self.atom(d)
        if r.random() < 0.5:
            return f"({o}|{r.choice(FILTERS0)})"
        return "(" + r.choice([
            f"{o}|join({self.expr(min(d, 1))})", f"{o}|join(', ', attribute='a')", f"{o}|default({self.expr(min(d, 1))})", f"{o}|default({self.expr(min(d, 1))}, true)", f"{o}|replace({self.expr(min(d, 1))}, {self.expr(min(d, 1))})",
            f"{o}|map('{r.choice(['upper', 'length', 'string', 'int', 'first', 'tojson', 'trim'])}')|list", f"{o}|map(attribute='{r.choice(['a', 'b', 'role', 'a.b', '0'])}')|list", f"{o}|map(attribute='a', default={self.expr(min(d, 1))})|list",
            f"{o}|select('{r.choice(TESTS)}')|list", f"{o}|reject('{r.choice(TESTS)}')|list", f"{o}|selectattr('{r.choice(['a', 'role'])}')|list", f"{o}|selectattr('role', '{r.choice(['equalto', '==', 'ne', 'in', 'lt'])}', {self.expr(min(d, 1))})|list",
            f"{o}|rejectattr('a', 'defined')|list", f"{o}|batch({self.small()})|list", f"{o}|batch(2, 'f')|list", f"{o}|slice({self.small()})|list", f"{o}|slice(3, 'f')|list", f"{o}|sort(reverse=true)", f"{o}|sort(attribute='a')", f"{o}|sort(case_sensitive=true)",
            f"{o}|groupby('a')|list", f"{o}|unique(attribute='a')|list", f"{o}|unique|list", f"{o}|indent({self.small()}, first={self.expr(min(d, 1))})", f"{o}|indent('> ', blank=true)", f"{o}|truncate({self.small()}, true)", f"{o}|truncate(9)", f"{o}|truncate(12, false, '..', 0)",
            f"{o}|wordwrap({self.small()})", f"{o}|wordwrap(9, false)", f"{o}|wordwrap(7, true, '|', false)", f"{o}|round({self.small()})", f"{o}|round(1, '{r.choice(['ceil', 'floor', 'common'])}')", f"{o}|int(default={self.expr(min(d, 1))})", f"{o}|int(0, {r.choice(['2', '8', '16', '0'])})", f"{o}|float({self.expr(min(d, 1))})",
            f"{o}|format({self.args(d)})", f"{o}|tojson(indent={r.choice(['2', 'none', '0', chr(39) + '--' + chr(39)])})", f"{o}|tojson(ensure_ascii=true)", f"{o}|tojson(sort_keys=true)", f"{o}|tojson(separators=(',', ':'))", f"{o}|trim({self.expr(min(d, 1))})", f"{o}|center({self.small()})", f"{o}|attr('{r.choice(['a', 'upper', 'items'])}')",
            f"{o}|dictsort(by='value')", f"{o}|dictsort(true, reverse=true)", f"{o}|min(attribute='a')", f"{o}|max(case_sensitive=true)", f"{o}|filesizeformat(true)", f"{o}|urlize(9, true)", f"{o}|xmlattr(false)", f"{o}|safe ~ {self.expr(min(d, 1))}", f"(s|safe) + {self.expr(min(d, 1))}", f"{o}|reverse|list", f"{o}|items|list", f"{o}|count", f"{o}|first|upper", f"{o}|title|wordcount", f"{o}|sum(start={self.expr(min(d, 1))})",
        ]) + ")"

    def test(self, d):
        r = self.r
        o = self.atom(d)
        n = r.choice(["", "not "])
        if r.random() < 0.6:
            return f"({o} is {n}{r.choice(TESTS)})"
        return f"({o} is {n}{r.choice(['divisibleby', 'eq', 'in', 'gt', 'lt', 'ne', 'ge', 'equalto'])}({self.expr(min(d, 1))}))"

    def stmts(self, depth=1):
        return "".join(self.stmt(depth) for _ in range(self.r.randrange(1, 4)))

    def tag(self, text):
        r = self.r
        return "{%" + r.choice(["", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "-", "+"]) + "%}"

    def stmt(self, depth):
        r = self.r
        k = r.randrange(17) if depth > 0 else r.randrange(4)
        d = depth - 1
        if k <= 2:
            return "{{" + r.choice(["", "-"]) + " " + self.expr() + " " + r.choice(["", "-"]) + "}}"
        if k == 3:
            return r.choice(["text", " ", "\n", "  \n  ", "{# c #}", "{#- c -#}\n", "<|x|>\n", "{% raw %}{{ x }}{% endraw %}\n"])
        if k in (4, 5):
            v = r.choice(["x", "y", "s", "n", "x"])
            self.names.append(v)
            return self.tag(f"set {v} = {self.expr()}") + "\n"
        if k == 6:
            return self.tag("set x, y = " + r.choice([self.expr(1) + ", " + self.expr(1), "l", "s", self.expr(2)]))
        if k == 7:
            return self.tag("set x" + r.choice(["", "|upper", "|trim|length"])) + self.stmts(d) + self.tag("endset")
        if k == 8:
            return self.tag(f"set ns = namespace(c=0, l=[])") + self.tag(f"for i in {self.expr(1)}") + self.tag("set ns.c = ns.c + 1") + self.tag("set ns.l = ns.l + [i]") + self.tag("endfor") + "{{ ns.c }}{{ ns.l }}" + r.choice(["", "{{ ns.nope }}", "{{ ns }}"])
        if k in (9, 10):
            tests = r.choice(["", "", f" if {self.expr(1)}", " if i"])
            self.names.append("i")
            loop = r.choice(["", "{{ loop.index }}{{ loop.first }}{{ loop.last }}", "{{ loop.index0 }}/{{ loop.length }}", "{{ loop.previtem }}|{{ loop.nextitem }}", "{{ loop.cycle('a', 'b') }}{{ loop.changed(i) }}", "{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }}",
                             self.tag("if loop.index > 2") + self.tag(r.choice(["break", "continue"])) + self.tag("endif"), "{{ loop }}"])
            target = r.choice(["i", "i", "i", "i, j", "x"])
            out = self.tag(f"for {target} in {self.expr(2)}{tests}") + loop + self.stmts(d)
            if r.random() < 0.3:
                out += self.tag("else") + self.stmts(d)
            self.names.remove("i")
            return out + self.tag("endfor")
        if k == 11:
            out = self.tag(f"if {self.expr(2)}") + self.stmts(d)
            if r.random() < 0.4:
                out += self.tag(f"elif {self.expr(2)}") + self.stmts(d)
            if r.random() < 0.5:
                out += self.tag("else") + self.stmts(d)
            return out + self.tag("endif")
        if k == 12:
            params = r.choice(["a, b=2", "a", "", "a, b=a", "a='x', b=none"])
            extra = r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ x }}", "{{ caller is defined }}", "{{ caller }}"])
            body = "{{ a }}{{ b }}" + extra + self.stmts(d)
            call = r.choice(["m1(1)", "m1(1, 2)", "m1(a=s)", "m1()", "m1(1, b=3)", "m1(1, 2, 3)", "m1(c=1)", "m1(*l)", "m1(**d)", "m1.name", "m1.arguments", "m1"])
            out = self.tag(f"macro m1({params})") + body + self.tag("endmacro")
            if r.random() < 0.4:
                return out + self.tag(f"call{r.choice(['', '(q)', '(q, w=1)'])} {call if '(' in call else 'm1()'}") + "[{{ q }}{{ s }}]" + self.tag("endcall")
            return out + "{{ " + call + " }}"
        if k == 13:
            return self.tag("filter " + r.choice(["upper", "trim|title", "replace('a', 'b')", "indent(2)", "length"])) + self.stmts(d) + self.tag("endfilter")
        if k == 14:
            self.names.append("w")
            out = self.tag(f"with w = {self.expr(1)}, s = {self.expr(1)}") + "{{ w }}{{ s }}" + self.stmts(d) + self.tag("endwith")
            self.names.remove("w")
            return out
        if k == 15:
            return self.tag("generation") + self.stmts(d) + self.tag("endgeneration")
        return self.tag("for k in [[1, [2]], 'ab', []] recursive") + "<{{ k if k is string }}{{ loop.depth }}" + r.choice(["{{ loop(k) if k is not string }}", "{% if k is not string and k is iterable %}{{ loop(k) }}{% endif %}"]) + ">" + self.tag("endfor")


def snippet_vars(r):
    return {"s": r.choice(TEXTS), "t": r.choice(TEXTS), "n": r.choice([0, 1, 2, 3, -1, 7, 2**63, True]), "m": number(r), "f": r.choice([0.5, 1.0, -2.5, 1e16, 3.0]), "l": [value(r, 2) for _ in range(r.randrange(5))],
            "d": {k: value(r, 2) for k in r.sample(KEYS, r.randrange(5))}, "dl": [{"a": r.choice([1, 2, "x", "X", None]), "role": r.choice(["user", "assistant"]), "b": value(r, 3)} for _ in range(r.randrange(4))], "b": r.random() < 0.5, "z": None}


# ---- answers -------------------------------------------------------------

def render(template, vars):
    try:
        return {"text": template.render(**vars)}
    except RecursionError as e:
        return {"error": f"RecursionError: {e}"}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


def compiled(source):
    try:
        return ENV.from_string(source), None
    except RecursionError as e:
        return None, {"error": f"RecursionError: {e}"}
    except Exception as e:
        return None, {"error": f"{type(e).__name__}: {e}"}


def case(source, vars):
    template, error = compiled(source)
    return error or render(template, vars)


cache = {}


def answer(q):
    op = q["op"]
    if op == "conversations":
        r = random.Random(q["seed"])
        cases = []
        for _ in range(q["count"]):
            i = r.randrange(len(q["templates"]))
            path = q["templates"][i]
            if path not in cache:
                cache[path] = compiled(open(path, encoding="utf-8", newline="").read())
            vars = conversation(r)
            text = json.dumps(vars)
            template, error = cache[path]
            cases.append({"template": i, "vars": text, **(error or render(template, json.loads(text)))})
        return {"cases": cases}
    if op == "snippets":
        cases = []
        for i in range(q["count"]):
            for attempt in range(12):  # mostly texts: a random snippet usually fails
                g = Snippets(f"{q['seed']}/{i}/{attempt}")
                source = g.stmts(g.r.choice([0, 1, 1, 2]))
                text = json.dumps(snippet_vars(g.r))
                out = case(source, json.loads(text))
                if "text" in out or g.r.random() < 0.08:
                    break
            cases.append({"source": source, "vars": text, **out})
        return {"cases": cases}
    if op == "render":
        return {"cases": [{**c, **case(c["source"], json.loads(c["vars"]))} for c in q["cases"]]}
    if op == "queries":
        return {"queries": [queries(t) for t in q["templates"]]}
    if op == "time":
        template, _ = compiled(q["source"])
        vars = json.loads(q["vars"])
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            template.render(**vars)
            best = min(best, time.perf_counter() - start)
        return {"seconds": best}
    return {"error": f"unknown op {op}"}


def queries(text):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = json.dumps
    try:
        return {"undeclared": sorted(jinja2.meta.find_undeclared_variables(env.parse(text)))}
    except Exception:
        return {"undeclared": None}


for line in sys.stdin:
    try:
        out = answer(json.loads(line))
    except Exception as e:  # the caller gets every failure
        out = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(out), flush=True)
