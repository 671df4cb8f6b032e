"""Fills a column of content_format.json: content_format.py COLUMN TEMPLATES, with the Python of an installed
vLLM. COLUMN counts from 0 among a template's releases, which are 0.32, 0.21 and 0.33. TEMPLATES is the
folder of scripts/fetch-templates.sh. A snippet whose 0.21 is "" was not run there.
"""

import json
import pathlib
import sys

from vllm.renderers.hf import _detect_content_format

FILE = pathlib.Path(__file__).with_suffix(".json")
NEW = [
    "{% set ns = namespace(x=messages) %}{% for m in ns.x %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.msgs = messages %}{% for m in ns.msgs %}{% for c in m['content'] %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(a=1, rest=messages[1:]) %}{% for m in ns.rest|list %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(rest=messages) %}{% set ms = ns.rest %}{% for m in ms[1:] %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(rest=messages) %}{% set other = namespace(x=ns.rest) %}{% for m in other.x %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(rest=none) %}{% if messages %}{% set ns.rest = messages[1:] %}{% endif %}{% for m in ns.rest %}{{ m.content }}{% endfor %}",
    "{% set ns = namespace(rest=messages) %}{% for m in ns['rest'] %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(rest=messages) %}{% for m in ns.other %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = dict(rest=messages) %}{% for m in ns.rest %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.msgs = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace({'x': messages}) %}{% for m in ns.x %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set a, b = messages, 1 %}{% for m in a %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% set ns.x = messages %}{% set ns.x = ns.x[1:] %}{% for m in ns.x %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "{% set ns = namespace(m=messages) %}{% for i in range(3) %}{% for c in ns.m[i].content %}{% endfor %}{% endfor %}",
    "{% macro r(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% set ns = namespace(x=messages) %}{% for m in ns.x %}{{ r(m.content) }}{% endfor %}",
    "{% set ns = namespace(x=messages is defined) %}{% for m in ns.x %}{% for c in m.content %}{% endfor %}{% endfor %}",
]

data = json.loads(FILE.read_text())
column, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
known = [s[0] for s in data["snippets"]]
data["snippets"] += [[s, "", "", ""] for s in NEW if s not in known]
for name, formats in data["templates"].items():
    formats += [""] * (3 - len(formats))
    formats[column] = _detect_content_format((folder / (name + ".jinja")).read_text(), default="string")
for snippet in data["snippets"]:
    snippet += [""] * (4 - len(snippet))
    snippet[1 + column] = _detect_content_format(snippet[0], default="string")
FILE.write_text(json.dumps(data, indent=1, ensure_ascii=False))
