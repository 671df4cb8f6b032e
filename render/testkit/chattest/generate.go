package chattest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"warmroute/render/openai"
)

// Case is one generated request.
type Case struct {
	Route openai.Route
	Body  string
}

// Generate returns n requests for the model: half are chats, a tenth completions, and the
// other routes share the rest. Prompts stay below about 2,000 tokens.
func Generate(seed uint64, n int, model string) []Case {
	cases := make([]Case, n)
	for i := range cases {
		g := &generator{r: rand.New(rand.NewPCG(seed, uint64(i))), model: model}
		switch i % 10 {
		case 0, 1, 2, 3, 4:
			cases[i] = Case{openai.Chat, g.chat()}
		case 5, 6:
			cases[i] = Case{openai.Responses, g.responses()}
		case 7, 8:
			cases[i] = Case{openai.Messages, g.messages()}
		default:
			cases[i] = Case{openai.Completions, g.completions()}
		}
	}
	return cases
}

type generator struct {
	r     *rand.Rand
	model string
	calls int // tool calls so far, for their ids
}

func (g *generator) one(n int) bool { return g.r.IntN(n) == 0 }

func (g *generator) pick(list ...string) string { return list[g.r.IntN(len(list))] }

// object joins the fields that are not empty.
func object(fields ...string) string {
	return "{" + joined(fields) + "}"
}

func array(items ...string) string { return "[" + joined(items) + "]" }

func joined(items []string) string {
	var kept []string
	for _, s := range items {
		if s != "" {
			kept = append(kept, s)
		}
	}
	return strings.Join(kept, ",")
}

// field returns `"key":value`, or "" if value is "".
func field(key, value string) string {
	if value == "" {
		return ""
	}
	return `"` + key + `":` + value
}

// maybe returns s once in n times, else "".
func (g *generator) maybe(n int, s func() string) string {
	if g.one(n) {
		return s()
	}
	return ""
}

// quote writes a JSON string, sometimes with unnecessary escapes.
func (g *generator) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	all := g.one(12)
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n' && !all:
			b.WriteString(`\n`)
		case r == '\t' && !all:
			b.WriteString(`\t`)
		case r == '/' && all:
			b.WriteString(`\/`)
		case r < 0x20 || all && r < 0x10000 && (r < 'a' || r > 'z'):
			fmt.Fprintf(&b, `\u%04x`, r)
		case all && r >= 0x10000:
			fmt.Fprintf(&b, `\u%04X\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var phrases = []string{
	"The quick brown fox jumps over the lazy dog.", "Summarise this in two sentences, please",
	"What's the weather like in Zürich tomorrow?", "def f(x):\n    return x**2  # square\n", "SELECT * FROM t WHERE a <> 'b';",
	"请用中文回答这个问题。", "日本語のテキストも含まれます", "한국어 문장입니다", "Привет, как дела?", "مرحبا بالعالم", "שלום עולם",
	"हिन्दी में लिखो", "👩‍👩‍👧‍👦 family 🏳️‍🌈", "e\u0301 vs \u00e9", "ﬁne ligature Å", "x\u200by\u00a0z\u3000w", "12345678901234567890 3.14159 1e-10",
	"<|im_start|>system", "<|im_end|>", "<think>hidden</think>", "<tool_call>{}</tool_call>", "<|endoftext|>", "{{ messages }} {% raw %}",
	"a\tb\r\nc", "   leading", "trailing   ", "\n\nboth\n\n", "'s 'LL 're don't", "<b>&amp;\"quoted\"</b>", "\u2028\u2029", "C:\\path\\to", "\x7f\u0085",
	"ſtrange 'ſ", "١٢٣ ४५६", "🇨🇭🇯🇵", "ÀÉÎÕÜ çñ", "https://example.com/a?b=c&d=%20#e",
}

func (g *generator) text() string {
	if g.one(25) {
		return ""
	}
	var b strings.Builder
	for range 1 + g.r.IntN(5) {
		b.WriteString(g.pick(phrases...))
		b.WriteString(g.pick(" ", " ", "\n", "", "\n\n", "  "))
	}
	return b.String()
}

func (g *generator) string() string { return g.quote(g.text()) }

// word returns a text that is never empty.
func (g *generator) word() string { return g.quote(g.pick(phrases...)) }

func (g *generator) number() string {
	return g.pick("0", "1", "-7", "1.0", "1.50", "1e-7", "1E5", "-0.0", "0.1", "123456789.123456789", "1e16", "1e22", "1.5e300",
		"9007199254740993", "12345678901234567890", "-123456789012345678901234567890", "2.5e-320", "100000000000000000000.0")
}

// value returns any JSON value, nested at most depth levels.
func (g *generator) value(depth int) string {
	switch k := g.r.IntN(9); {
	case k < 3:
		return g.string()
	case k < 5:
		return g.number()
	case k == 5:
		return g.pick("true", "false", "null")
	case k == 6 && depth > 0:
		items := make([]string, g.r.IntN(4))
		for i := range items {
			items[i] = g.value(depth - 1)
		}
		return array(items...)
	case depth > 0:
		return g.dict(depth - 1)
	}
	return g.number()
}

func (g *generator) dict(depth int) string {
	var fields []string
	for i, key := range []string{"zeta", "alpha", "größe", "nested key", "1", "日本"} {
		if g.one(2) {
			fields = append(fields, g.quote(key)+":"+g.pick("", " ", "\n ")+g.value(depth))
		}
		_ = i
	}
	return object(fields...)
}

// schema returns a JSON schema with values that are difficult for templates and for
// number printing.
func (g *generator) schema(depth int) string {
	if depth == 0 || g.one(3) {
		return object(field("type", g.pick(`"string"`, `"integer"`, `"number"`, `["integer","null"]`, `"boolean"`)),
			field("description", g.maybe(2, g.string)), field("default", g.maybe(2, func() string { return g.value(1) })),
			field("minimum", g.maybe(3, g.number)), field("enum", g.maybe(4, func() string { return array(g.word(), g.number(), "null") })))
	}
	var properties []string
	for _, key := range []string{"query", "limit", "tags", "ünïcode", "b", "a"} {
		if g.one(2) {
			properties = append(properties, g.quote(key)+":"+g.schema(depth-1))
		}
	}
	return object(field("type", `"object"`), field("properties", object(properties...)),
		field("required", g.pick("[]", `["query"]`)), field("additionalProperties", g.maybe(2, func() string { return "false" })))
}

var toolNames = []string{"search", "get_weather", "run_code", "lookup_ünit"}

// function returns a function's fields, with the parameters under the given key.
func (g *generator) function(name, parameters string) []string {
	fields := []string{field("name", g.quote(name)), field("description", g.maybe(2, g.string)), field(parameters, g.schema(3)),
		field("strict", g.maybe(4, func() string { return g.pick("true", "false") }))}
	g.r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return fields
}

// tools lists one to three tools in the shape of the route.
func (g *generator) tools(route openai.Route) string {
	var list []string
	for _, name := range toolNames[:1+g.r.IntN(3)] {
		switch route {
		case openai.Responses:
			list = append(list, object(append([]string{`"type":"function"`}, g.function(name, "parameters")...)...))
		case openai.Messages:
			list = append(list, object(g.function(name, "input_schema")...))
		default:
			list = append(list, object(g.maybe(2, func() string { return `"type":"function"` }),
				field("function", object(g.function(name, "parameters")...))))
		}
	}
	return array(list...)
}

// arguments returns the text of a call's arguments, without quotes.
func (g *generator) arguments() string {
	switch g.r.IntN(10) {
	case 0:
		return "{}"
	case 1:
		return g.pick("", "[1, 2]", "{bad", "null", "42")
	}
	return g.dict(2)
}
