package jinja

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// fuzzLimits keep one input short.
var fuzzLimits = Limits{Depth: 200, Output: 1 << 20}

func fuzzWork() *work.Budget {
	return work.New(context.Background(), work.Limits{Steps: 160_000, Memory: 64 << 20}, 0)
}

var fuzzSeeds = []string{
	"{%- for m in messages -%}{{ '<|' + m.role + '|>' ~ m['content']|trim }}{% if not loop.last %}\n{% endif %}{%- endfor %}",
	"{% macro f(a, b=2) %}{{ a }}{{ caller() if caller }}{{ varargs }}{{ kwargs }}{% endmacro %}{% call(x) f(1, *l, **d) %}{{ x }}{% endcall %}",
	"{% set ns = namespace(a=[1]) %}{% set ns.a = ns.a + [2] %}{% set x, y = 1, 2 %}{{ ns.a[::-1] }}{% set t|upper %}q{% endset %}{{ t }}",
	"{{ '%5.2f|%-4s|%(a)x' % (1.5, 'x') }}{{ '{:>8,}{!r}'.format(1234, 'a') }}{{ d|tojson(indent=2) }}{{ l|map(attribute='a')|join(',') }}",
	"{% for x in l if x recursive %}{{ loop(x) if x is iterable }}{{ loop.cycle(1, 2) }}{% break %}{% else %}e{% endfor %}",
	"{# c -#}{% raw %}{{ }}{% endraw %}{% with a = 1 %}{{ a }}{% endwith %}{% filter indent(2) %}x\ny{% endfilter %}{% generation %}g{% endgeneration %}",
	"{{ 2 ** 100 // 7 % 3 - 1.5 / -2 }}{{ 1 < 2 < 3 and not none or 'a' in 'abc' }}{{ s.split('x')[-1][1:2] }}{{ range(3)|sum }}{{ u is defined }}",
	"{{ l|sort(attribute='a')|groupby('a')|list }}{{ s|wordwrap(5)|urlize|pprint }}{{ d|dictsort|batch(2)|list }}{{ s|truncate(3)|title }}",
	"{% block a scoped %}{{ self.a }}{% endblock %}{{ strftime_now('%d %b %Y') }}{{ raise_exception('x') }}{% include 'x' %}",
}

const fuzzVars = `{"messages":[{"role":"user","content":" hi "}],"l":[{"a":1},{"a":"x"},[1,2],"s",null],"d":{"a":1,"b":[2.5]},"s":"a x b <c> http://x.y","n":3}`

func FuzzCompile(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		watchdog := time.AfterFunc(hang, func() { panic(fmt.Sprintf("hangs: %q", src)) })
		defer watchdog.Stop()
		tmpl, err := Compile(src, Options{Limits: fuzzLimits})
		if err != nil {
			if !errors.Is(err, ErrSyntax) && Refused(err) == "" {
				t.Fatalf("error %v (%s)", err, Detail(err))
			}
			return
		}
		tmpl.Undeclared()
		for _, d := range []Detection{Detection21, Detection32, Detection33} {
			tmpl.OpenAIContent(d)
		}
	})
}

func FuzzRender(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, fuzzVars)
	}
	f.Fuzz(func(t *testing.T, src, vars string) {
		watchdog := time.AfterFunc(hang, func() { panic(fmt.Sprintf("hangs: %q with %q", src, vars)) })
		defer watchdog.Stop()
		v, err := pyvalue.Parse([]byte(vars))
		d, ok := v.(*pyvalue.Dict)
		if err != nil || !ok {
			return
		}
		tmpl, err := Compile(src, Options{Limits: fuzzLimits})
		if err != nil {
			return
		}
		first, err := tmpl.Render(nil, d, Env{Now: goldenClock, Work: fuzzWork()})
		if errors.Is(err, ErrInternal) {
			t.Fatalf("error %v (%s)", err, Detail(err))
		}
		second, again := tmpl.Render(nil, d, Env{Now: goldenClock, Work: fuzzWork()})
		if (err == nil) != (again == nil) || string(first) != string(second) {
			t.Fatalf("rendered twice: %q (%v), %q (%v)", first, err, second, again)
		}
	})
}
