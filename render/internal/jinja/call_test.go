package jinja

import (
	"testing"

	"warmroute/render/internal/pyvalue"
)

// raises stands for the text of a template for which Jinja2 raises.
const raises = "\x00"

// TestCallBlocks: what Jinja2 3.1.6 (testkit/oracle) makes of {% call %}.
func TestCallBlocks(t *testing.T) {
	vars, err := pyvalue.Parse([]byte(`{"s":"S","l":[1,"b"],"d":{"k":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ source, text string }{
		{`{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}x{{ s }}{% endcall %}`, `<1xS>`},
		{`{% macro m() %}{{ caller(1, b=2) }}{{ caller(3) }}{% endmacro %}{% call(a, b='d') m() %}[{{ a }}{{ b }}]{% endcall %}`, `[12][3d]`},
		{`{% macro m() %}{{ caller is defined }}{% if caller %}{{ caller() }}{% endif %}{% endmacro %}{{ m() }}{% call m() %}y{% endcall %}`, `FalseTruey`},
		{`{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}`, raises},
		{`{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}`, raises},
		{`{% macro m() %}{{ kwargs|list }}{{ kwargs.caller() }}{% endmacro %}{% call m(b=1) %}y{% endcall %}`, `['b', 'caller']y`},
		{`{% macro m() %}{{ varargs }}{{ kwargs }}{{ caller() }}{% endmacro %}{% call(*l) m(1, *l, **d) %}y{% endcall %}`, raises},
		{`{% macro m() %}{{ varargs }}{{ kwargs }}{{ caller() }}{% endmacro %}{% call m(1, *l, **d) %}y{% endcall %}`, `(1, 1, 'b'){'k': 2}y`},
		{`{% macro o() %}{% call i() %}({{ caller is defined }}){% endcall %}{% endmacro %}{% macro i() %}i{{ caller() }}{% endmacro %}{% call o() %}z{% endcall %}`, `i(False)`},
		{`{% macro i() %}i{{ caller() }}{% endmacro %}{% macro o() %}{% set c = caller %}{% call i() %}({{ c() }}){% endcall %}{% endmacro %}{% call o() %}z{% endcall %}`, `i(z)`},
		{`{% for x in l %}{% set y = x %}{% call m2() %}{{ x }}{{ y }}{{ loop.index }}{% endcall %}{% endfor %}`, raises},
		{`{% macro m() %}{% for x in l %}{{ caller(x, loop.last) }},{% endfor %}{% endmacro %}{% call(x, last) m() %}{{ x }}{{ last }}{% endcall %}`, `1False,bTrue,`},
		{`{% macro m(f) %}{{ f() }}{{ caller() }}{% endmacro %}{% call m(caller=1, f=2) %}y{% endcall %}`, raises},
		{`{% macro m() %}{{ caller }}{{ caller.name }}{{ caller.arguments }}{{ caller.caller }}{% endmacro %}{{ m.caller }}{% call(a) m() %}y{{ caller }}{% endcall %}`, `True<Macro anonymous>None('a',)True`},
		{`{% call dict() %}{% endcall %}`, raises},
		{`{% call nope() %}{% endcall %}`, raises},
		{`{% call s %}{% endcall %}`, raises},
		{`{% call s.upper() %}{% endcall %}`, raises},
		{`{% call(x m() %}{% endcall %}`, raises},
		{`{% call range(1) %}{% endcall %}`, raises},
		{`{% set ns = namespace(n=0) %}{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% call m() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endcall %}{{ ns.n }}`, `122`},
		{`{% set v = 1 %}{% macro m() %}{% set v = 2 %}{{ caller() }}{% endmacro %}{% call m() %}{{ v }}{% set v = 3 %}{{ v }}{% endcall %}{{ v }}`, `131`},
		{`{% for x in l %}{% call m() %}{% break %}{% endcall %}{% endfor %}`, raises},
		{"{%- macro m() -%}\n  a\n  {{- caller() }}\n{%- endmacro -%}\n{%- call m() %}\n  b\n{% endcall -%}\n c", "a  b\nc"},
		{`{% macro m() %}{{ caller()|upper }}{{ caller() ~ 1 }}{% endmacro %}{% call m() %}<&{% endcall %}`, `<&<&1`},
		{`{% generation %}{{ caller is defined }}{% endgeneration %}`, `False`},
		{`{% macro m(n) %}{{ n }}{{ caller(n) }}{% if n %}{% call(k) m(n - 1) %}{{ k }}{{ n }}{% endcall %}{% endif %}{% endmacro %}{% call(n) m(2) %}r{{ n }}{% endcall %}`, `2r2112001`},
	} {
		tmpl, err := Compile(c.source, Options{})
		var got []byte
		if err == nil {
			got, err = tmpl.Render(nil, vars.(*pyvalue.Dict), Env{})
		}
		if Refused(err) != "" || (err != nil) != (c.text == raises) || err == nil && string(got) != c.text {
			t.Errorf("%s: %q, %v, want %q", c.source, got, err, c.text)
		}
	}
}
