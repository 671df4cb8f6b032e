package jinja

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"strings"
	"testing"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/testkit/race"
	"warmroute/render/work"
)

// whole are expressions that look at all of s, a text, of w, spaces, of l, a list, or of
// d, a dict. The elements are not one step, however long they are.
var whole = []string{
	"s|length", "s|count", "s[-1]", "s[1:]|length", "s[::-1]|length", "s[::2]|length", "s|reverse|length", "s|last", "s|list|length",
	"'é' in s", "s in t", "s == t", "s != t", "s < t", "s >= t", "s is eq t", "s is sameas t", "s is in [t]", "t in [s]",
	"s + 'x'", "s ~ 'x'", "('x' ~ s)|length", "s * 2", "('%s' % s)|length", "'{}'.format(s)|length", "s|string ~ ''", "s|format",
	"s|upper", "s|lower", "s|title", "s|capitalize", "s.upper()", "s.casefold()", "s.swapcase()", "s.title()", "s.capitalize()",
	"s.islower()", "s is lower", "a.isalpha()", "a.isalnum()", "a.isidentifier()", "a.isascii()", "s.isprintable()", "w.isspace()",
	"s|replace('x', 'y')", "s.replace('', '.')", "s.split('x')|length", "s.split()|length", "s.rsplit('x')|length", "s.splitlines()|length",
	"s.find('q')", "s.rfind('q')", "s.count('x')", "s.partition('q')|length", "s.rpartition('q')|length", "s.startswith('x', 5)",
	"w|trim|length", "w.strip()|length", "w.lstrip()|length", "w.rstrip()|length", "w.strip(' ')|length", "w|trim(' ')|length", "w.split()|length",
	"s|indent", "s|wordcount", "s|truncate(5)", "s|center(9)", "s.ljust(9)", "s.zfill(9)", "s.expandtabs()", "s.encode()|length", "s|e", "s|tojson",
	"s|int", "s|float", "{s: 1}|length", "d[s]", "d.get(s)", "s in d", "{(s, s): 1}|length", "'-'.join(l)", "s.join(['a', 'b'])",
	"l == m", "l < m", "l in [m]", "'q' in l", "l|join", "l|join(',')", "l|sort|length", "l|unique|list|length", "l|min", "l|max", "l|list|length",
	"l|map('upper')|list|length", "l|select('eq', 'q')|list|length", "l|reject('eq', 'q')|list|length", "l|reverse|list|length", "l|tojson", "l|string",
	"l + m", "l * 2", "l[1:]|length", "l[::-1]|length", "l.count('q')", "l.copy()|length", "n|sum", "(l|list)|length",
	"d|tojson", "d|string", "d|dictsort|length", "d|list|length", "d|items|list|length", "d.items()|list|length", "d.keys()|list|length",
	"d.values()|list|length", "d.copy()|length", "dict(d)|length", "dict(d.items())|length", "d == e", "d.items() == e.items()", "d.keys() == e.keys()",
	"d.fromkeys(l)|length", "namespace(d)", "l is in [m]", "'%s' % (l,)", "l ~ ''", "(s|safe) + s", "s|safe|e",
	"s|attr(s)", "'x' is in s", "s|forceescape", "s.index('é', 2)",
}

func costVars(n int) *pyvalue.Dict {
	text := strings.Repeat("xyz é", n/6)
	vars := pyvalue.NewDict()
	fill := func(prefix string) (*pyvalue.List, *pyvalue.Dict) {
		l, d := pyvalue.NewList(), pyvalue.NewDict()
		for i := range n / 16 {
			item := fmt.Sprint(prefix, i)
			l.Items = append(l.Items, item)
			d.Set(item, item)
		}
		return l, d
	}
	l, d := fill("item")
	m, e := fill("item")
	numbers := pyvalue.NewList()
	for i := range n / 16 {
		numbers.Items = append(numbers.Items, int64(i))
	}
	for name, v := range map[string]any{"s": text, "t": strings.Clone(text), "a": strings.Repeat("a", n), "w": strings.Repeat(" ", n),
		"l": l, "m": m, "d": d, "e": e, "n": numbers} {
		vars.Set(name, v)
	}
	return vars
}

// costly renders an expression with a budget that nothing here exhausts.
func costly(t testing.TB, expression string, vars *pyvalue.Dict) (steps, memory int) {
	t.Helper()
	tmpl, err := Compile("{{ "+expression+" }}", Options{})
	if err != nil {
		t.Fatalf("%s: %v (%s)", expression, err, Detail(err))
	}
	b := work.New(context.Background(), work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
	if _, err := tmpl.Render(nil, vars, Env{Now: goldenClock, Work: b}); errors.Is(err, ErrLimit) || errors.Is(err, ErrInternal) {
		t.Fatalf("%s: %v (%s)", expression, err, Detail(err))
	}
	return b.Spent()
}

// Every operation is charged by the size of its values, and in proportion to it.
func TestOperationsAreChargedBySize(t *testing.T) {
	const n = 1 << 16
	small, large := costVars(n), costVars(2*n)
	for _, e := range whole {
		a, aBytes := costly(t, e, small)
		b, bBytes := costly(t, e, large)
		if a < n/64 {
			t.Errorf("%s: %d steps for %d bytes", e, a, n)
		}
		if b > 3*a || bBytes > 3*aBytes+1000 {
			t.Errorf("%s: %d steps and %d bytes, for twice as much %d and %d", e, a, aBytes, b, bBytes)
		}
	}
}

// allocated returns the bytes that the process has allocated so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// The allocations of an operation are charged, except those within a constant bound.
func TestAllocationsAreCharged(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes other allocations")
	}
	const n = 1 << 20
	vars := costVars(n)
	for _, e := range whole {
		before := allocated()
		_, charged := costly(t, e, vars)
		if got := int(allocated() - before); got > 4*charged+n/2 {
			t.Errorf("%s: %d bytes allocated, %d charged", e, got, charged)
		}
	}
}

// The time of a step of each operation.
func BenchmarkStep(b *testing.B) {
	vars := costVars(1 << 20)
	for _, e := range whole {
		b.Run(e, func(b *testing.B) {
			steps := 0
			for b.Loop() {
				steps, _ = costly(b, e, vars)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(steps), "ns/step")
		})
	}
}

// A template of endless work ends with its budget, and says how.
func TestBudgetEndsRender(t *testing.T) {
	tmpl, err := Compile("{% for i in range(100000) %}{% for j in range(100000) %}{{ s|upper }}{% endfor %}{% endfor %}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	vars := parseVars(t, `{"s":"`+strings.Repeat("x", 100)+`"}`)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx    context.Context
		limits work.Limits
		want   error
	}{
		{t.Context(), work.Limits{Steps: 100_000}, work.ErrSteps},
		{t.Context(), work.Limits{Memory: 100_000}, work.ErrMemory},
		{ended, work.Limits{}, context.Canceled},
	} {
		b := work.New(c.ctx, c.limits, 0)
		out, err := tmpl.Render([]byte("kept"), vars, Env{Work: b})
		if !errors.Is(err, c.want) || !errors.Is(err, ErrLimit) || string(out) != "kept" {
			t.Errorf("%v and %q, want %v", err, out, c.want)
		}
		if steps, _ := b.Spent(); steps > 120_000 && !errors.Is(c.want, work.ErrMemory) {
			t.Errorf("%v after %d steps", c.want, steps)
		}
	}
}

// Templates of an author's choice are compiled within a budget that is linear in them.
func TestCompilingIsLinear(t *testing.T) {
	for name, unit := range map[string]string{
		"text": "x", "variables": "{{ a }}", "names": "{%% set v%d = %[1]d %%}", "sums": "{{ 1 + 2 + 3 }}", "ifs": "{% if a and b or c %}x{% endif %}",
		"loops": "{% for i in x %}{% for j in i %}{{ j }}{% endfor %}{% endfor %}", "constants": "{{ 'x' * 1000 }}", "ands": "{{ 1 and 2 and 3 and 4 }}",
		"comparisons": "{{ 1 < 2 < 3 < 4 }}", "macros": "{%% macro m%d(a) %%}{{ a }}{%% endmacro %%}", "filters": "{{ 'a'|upper|lower|trim }}",
	} {
		cost := func(n int) int {
			var src strings.Builder
			for i := 0; src.Len() < n; i++ {
				if strings.Contains(unit, "%d") {
					fmt.Fprintf(&src, unit, i)
				} else {
					src.WriteString(unit)
				}
			}
			b := work.New(t.Context(), work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
			if _, err := Compile(src.String(), Options{Work: b}); err != nil {
				t.Fatalf("%s: %v (%s)", name, err, Detail(err))
			}
			steps, _ := b.Spent()
			return steps
		}
		a, b := cost(1<<13), cost(1<<14)
		t.Logf("%s: %d steps a byte", name, b>>14)
		if b > 3*a+1000 {
			t.Errorf("%s: %d steps, for twice as much %d", name, a, b)
		}
	}
}
