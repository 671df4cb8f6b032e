package pyvalue

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"warmroute/render/work"
)

// Texts are CPython's output of repr(json.loads(s)).
func TestParseRepr(t *testing.T) {
	for in, want := range map[string]string{
		`{"b": 1, "a": [1, 2.0, "x", null, true, false]}`: `{'b': 1, 'a': [1, 2.0, 'x', None, True, False]}`,
		`"it's"`:                       `"it's"`,
		`"say \"hi\" it's"`:            `'say "hi" it\'s'`,
		`"\u0000\u001f\u007f\u00a0\n"`: `'\x00\x1f\x7f\xa0\n'`,
		`"\ud83d\ude00\u200b\ue000"`:   `'😀\u200b\ue000'`,
		`1e16`:                         `1e+16`,
		`123456789012345.6`:            `123456789012345.6`,
		`9999999999999998.0`:           `9999999999999998.0`,
		`0.0001`:                       `0.0001`,
		`0.00001`:                      `1e-05`,
		`1e22`:                         `1e+22`,
		`1.5e300`:                      `1.5e+300`,
		`-0.0`:                         `-0.0`,
		`-0`:                           `0`,
		`1E400`:                        `inf`,
		`[NaN, -Infinity]`:             `[nan, -inf]`,
		`9223372036854775807`:          `9223372036854775807`,
		`9223372036854775808`:          `9223372036854775808`,
		`-9223372036854775809`:         `-9223372036854775809`,
		` [ ] `:                        `[]`,
		`{"": {}}`:                     `{'': {}}`,
	} {
		v, err := Parse([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got, err := Repr(nil, v); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", in, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]error{
		``: ErrSyntax, `{`: ErrSyntax, `[1,]`: ErrSyntax, `{"a":1,}`: ErrSyntax, `01`: ErrSyntax, `1.`: ErrSyntax,
		`-`: ErrSyntax, `+1`: ErrSyntax, `.5`: ErrSyntax, `"a`: ErrSyntax, "\"\n\"": ErrSyntax, `"\x"`: ErrSyntax,
		`"\u12"`: ErrSyntax, `nul`: ErrSyntax, `1 2`: ErrSyntax, `{1:2}`: ErrSyntax, "\ufeff1": ErrSyntax, `'a'`: ErrSyntax,
		`{"a":1,"a":2}`: ErrDuplicateKey, `{"a":1,"\u0061":2}`: ErrDuplicateKey,
		`"\ud800"`: ErrSurrogate, `"\udc00\ud800"`: ErrSurrogate, `"\ud800\u0041"`: ErrSurrogate,
		"\"\xff\"": ErrUTF8, "\"\xed\xa0\x80\"": ErrUTF8, "\"\\n\xc0\xaf\"": ErrUTF8,
		strings.Repeat("[", MaxDepth+1): ErrDepth, strings.Repeat(`{"a":`, MaxDepth+1): ErrDepth,
		strings.Repeat("1", MaxDigits+1): ErrDigits,
	} {
		if _, err := Parse([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%.40q: error %v, want %v", in, err, want)
		}
	}
}

// Texts are CPython's output of json.dumps with the options.
func TestDumps(t *testing.T) {
	v, err := Parse([]byte(`{"b":[1,2.50,{}],"é\u007f":"<\n\"\\😀>","a":{"x":null,"y":[]},"n":[1e400,12345678901234567890]}`))
	if err != nil {
		t.Fatal(err)
	}
	two := "  "
	for _, c := range []struct {
		o    DumpOptions
		want string
	}{
		{DefaultDumps(), `{"b": [1, 2.5, {}], "\u00e9\u007f": "<\n\"\\\ud83d\ude00>", "a": {"x": null, "y": []}, "n": [Infinity, 12345678901234567890]}`},
		{DumpOptions{ItemSep: ",", KeySep: ":", SortKeys: true}, `{"a":{"x":null,"y":[]},"b":[1,2.5,{}],"n":[Infinity,12345678901234567890],"é` + "\x7f" + `":"<\n\"\\😀>"}`},
		{DumpOptions{ItemSep: ",", KeySep: ": ", Indent: &two}, "{\n  \"b\": [\n    1,\n    2.5,\n    {}\n  ],\n  \"é\x7f\": \"<\\n\\\"\\\\😀>\",\n  \"a\": {\n    \"x\": null,\n    \"y\": []\n  },\n  \"n\": [\n    Infinity,\n    12345678901234567890\n  ]\n}"},
	} {
		if got, err := AppendDumps(nil, v, c.o); err != nil || string(got) != c.want {
			t.Errorf("got  %s (%v)\nwant %s", got, err, c.want)
		}
	}
	d := NewDict()
	d.Set(nil, int64(1))
	d.Set(true, 2.0)
	d.Set(1.5, NewTuple("x"))
	if got, err := AppendDumps(nil, d, DefaultDumps()); err != nil || string(got) != `{"null": 1, "true": 2.0, "1.5": ["x"]}` {
		t.Errorf("got %s (%v)", got, err)
	}
	d.Set(NewTuple(), 1)
	if _, err := AppendDumps(nil, d, DefaultDumps()); !errors.Is(err, ErrType) {
		t.Errorf("error %v for a tuple as key", err)
	}
}

func TestDictAndEquality(t *testing.T) {
	d := NewDict()
	for i := range int64(20) {
		d.Set(i, i)
	}
	d.Set(true, "one")
	d.Set(2.0, "two")
	if v, _ := d.Get(int64(1)); v != "one" || d.Len() != 20 {
		t.Errorf("d[1] = %v of %d", v, d.Len())
	}
	if !d.Delete(2.0) || d.Delete(2.0) || d.Len() != 19 {
		t.Error("delete")
	}
	if k, _ := d.At(2); k != int64(3) {
		t.Errorf("order: %v", k)
	}
	if _, ok := d.Get(NewList()); ok || Hashable(NewTuple(NewList())) || !Hashable(NewTuple("a", int64(1))) {
		t.Error("hashability")
	}
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{true, int64(1), true}, {1.0, int64(1), true}, {"1", int64(1), false}, {nil, false, false},
		{int64(1<<53 + 1), float64(1 << 53), false}, {math.NaN(), math.NaN(), false},
		{NewList(int64(1)), NewList(1.0), true}, {NewList(), NewTuple(), false},
	} {
		if eq, err := Equal(nil, c.a, c.b); err != nil || eq != c.want {
			t.Errorf("%v == %v: %v (%v)", c.a, c.b, eq, err)
		}
	}
	if _, err := Less(nil, "a", int64(1)); !errors.Is(err, ErrType) {
		t.Errorf("'a' < 1: %v", err)
	}
}

// Strings are read as by encoding/json, at any place in a word of eight bytes that their
// escapes, ends and characters beyond ASCII have.
func TestStringsAtEveryOffset(t *testing.T) {
	for before := range 20 {
		for _, middle := range []string{``, `\n`, `\"`, `\\`, `é`, `漢字`, `\u00e9`, `\ud83d\ude00`, `\n\n`, `\té\t`, "\x1f", "\x7f", "\x80", `\`} {
			for after := range 20 {
				list := `["` + strings.Repeat("a", before) + middle + strings.Repeat("b", after) + `","\t","x"]`
				var want []any
				refused := json.Unmarshal([]byte(list), &want) != nil || !utf8.ValidString(list)
				got, err := Parse([]byte(list))
				if (err != nil) != refused {
					t.Fatalf("%q: %v, refused by encoding/json: %v", list, err, refused)
				}
				if err != nil {
					continue
				}
				for i, s := range got.(*List).Items {
					if s != want[i] {
						t.Fatalf("%q: item %d is %q", list, i, s)
					}
				}
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00",null,true,NaN,-Infinity]}`, `"\ud800"`, "\"\xff\"", `[[[[`, `12345678901234567890`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data)
		if err != nil {
			return
		}
		var plain string
		if s, ok := v.(string); ok && json.Unmarshal(data, &plain) == nil && s != plain {
			t.Fatalf("%q is read as %q", data, s)
		}
		text, err := AppendDumps(nil, v, DefaultDumps())
		if err != nil {
			t.Fatalf("cannot dump what was parsed: %v", err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("cannot parse %q: %v", text, err)
		}
		a, _ := Repr(nil, v)
		if b, _ := Repr(nil, again); a != b {
			t.Fatalf("%s became %s", a, b)
		}
	})
}

func TestParseLast(t *testing.T) {
	v, err := ParseLast(new(work.Budget), []byte(`{"a":1,"b":{"c":1,"c":[2]},"a":3}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := AppendDumps(nil, v, DefaultDumps()); string(got) != `{"a": 3, "b": {"c": [2]}}` {
		t.Errorf("%s", got)
	}
}
