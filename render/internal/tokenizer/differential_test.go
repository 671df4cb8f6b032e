package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"warmroute/render/testkit/oracle"
)

// fuzzStrings is how many random strings each tokenizer is compared on:
// WARMROUTE_FUZZ_STRINGS, else enough for every test run.
func fuzzStrings(t *testing.T) int {
	s := os.Getenv("WARMROUTE_FUZZ_STRINGS")
	if s == "" {
		return 800
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("WARMROUTE_FUZZ_STRINGS is %q, not a number", s)
	}
	return n
}

// corpus makes random texts: cuts of the golden strings, special tokens,
// troublesome characters and random code points, put together anyhow.
type corpus struct {
	r      *rand.Rand
	pieces []string
}

func newCorpus(t testing.TB, seed uint64, tok *Tokenizer) *corpus {
	c := &corpus{r: rand.New(rand.NewPCG(seed, 7))}
	for _, s := range goldenStrings(t) {
		runes := []rune(s)
		for len(runes) > 0 {
			n := min(len(runes), 1+c.r.IntN(12))
			c.pieces = append(c.pieces, string(runes[:n]))
			runes = runes[n:]
		}
	}
	c.pieces = append(c.pieces, strings.Split(" |  |   |\n|\n\n|\r\n|\t|'s|'LL|'ſ|▁|▁▁|▁</|>|<|｜|é|e\u0301|a\u0323\u0301|\u0345|\u0f71\u0f72|한|\u1112\u1161\u11ab|\ufb01|½|١٢|\u200d|\u00a0|\u3000|\u2028|\x00|\U0001f469\u200d\U0001f680|<0x0A>|<unk>|Ġ|中|あ|1234567", "|")...)
	if tok != nil {
		for text := range tok.added {
			c.pieces = append(c.pieces, text, text[:len(text)-1])
			if len(c.pieces) > 60000 {
				break
			}
		}
	}
	slices.Sort(c.pieces) // the added tokens come in a map's order
	return c
}

func (c *corpus) next() string {
	var b strings.Builder
	n := 1 + c.r.IntN(10)
	if c.r.IntN(200) == 0 {
		n = 200
	}
	for range n {
		switch c.r.IntN(10) {
		case 0:
			r := rune(c.r.IntN(0x110000))
			if c.r.IntN(2) == 0 {
				r = rune(c.r.IntN(0x3000))
			}
			if utf8.ValidRune(r) {
				b.WriteRune(r)
			}
		case 1:
			b.WriteString(strings.Repeat(c.pieces[c.r.IntN(len(c.pieces))], 1+c.r.IntN(4)))
		case 2: // combining marks in a row
			for range 1 + c.r.IntN(4) {
				b.WriteRune(rune(0x300 + c.r.IntN(0x70)))
			}
		default:
			b.WriteString(c.pieces[c.r.IntN(len(c.pieces))])
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

func startOracle(t testing.TB) *oracle.Process {
	t.Helper()
	p, err := oracle.Start("tokenizers_fuzz.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// compare encodes n random texts both ways and reports the first differences.
func compare(t *testing.T, ref *oracle.Process, name string, tok *Tokenizer, c *corpus, n int) {
	t.Helper()
	bad, panics := 0, 0
	for done := 0; done < n; {
		batch := make([]string, min(500, n-done))
		for i := range batch {
			batch[i] = c.next()
		}
		special := c.r.IntN(2) == 0
		var want struct{ IDs [][]uint32 }
		if err := ref.Ask(map[string]any{"op": "encode", "name": name, "texts": batch, "special": special}, &want); err != nil {
			t.Fatal(err)
		}
		for i, text := range batch {
			if want.IDs[i] == nil {
				panics++
				tok.Append(nil, nil, []byte(text), special)
				continue
			}
			if got := tok.Append(nil, nil, []byte(text), special); !slices.Equal(got, want.IDs[i]) {
				if bad++; bad <= 3 {
					t.Errorf("%+q:\n got %v\nwant %v", text, got, want.IDs[i])
				}
			}
		}
		done += len(batch)
	}
	if bad > 0 {
		t.Errorf("%d of %d texts differ", bad, n)
	}
	if panics > n/2 {
		t.Errorf("the reference panics on %d of %d texts", panics, n)
	}
	t.Logf("%s: %d random strings, %d differences, the reference panicked on %d", name, n, bad, panics)
}

// Real tokenizers against Python tokenizers on random strings. The long form:
// WARMROUTE_FUZZ_STRINGS=200000.
func TestDifferential(t *testing.T) {
	ref := startOracle(t)
	names := someModels()
	if more := os.Getenv("WARMROUTE_FUZZ_MODELS"); more != "" { // folders of other models
		names = append(slices.Clone(names), strings.Split(more, ":")...)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var tok *Tokenizer
			path := filepath.Join(name, "tokenizer.json")
			if filepath.IsAbs(name) {
				var err error
				if tok, err = Load(name, Options{}); err != nil {
					t.Fatal(err)
				}
			} else {
				tok, path = model(t, name), filepath.Join(modelDir(t, name), "tokenizer.json")
			}
			var ok struct{ OK bool }
			if err := ref.Ask(map[string]any{"op": "load", "name": name, "path": path}, &ok); err != nil {
				t.Fatal(err)
			}
			compare(t, ref, name, tok, newCorpus(t, 1, tok), fuzzStrings(t))
		})
	}
}

// small makes a tokenizer.json of a small model with the given parts.
func small(byteLevel bool, parts map[string]any, model map[string]any) string {
	vocab := map[string]int{}
	add := func(s string) {
		if _, ok := vocab[s]; !ok {
			vocab[s] = len(vocab)
		}
	}
	var merges []string
	merge := func(list string) {
		for _, m := range strings.Split(list, "|") {
			a, b, _ := strings.Cut(m, " ")
			add(a)
			add(b)
			add(a + b)
			merges = append(merges, m)
		}
	}
	if byteLevel {
		for _, r := range byteRune {
			add(string(r))
		}
		merge("Ġ t|h e|Ġt he|i n|e r|Ġ Ġ|ĠĠ ĠĠ|1 2|12 3|Ã ©|Ċ Ċ|a b|ab c|a bc|b c|o n|r e|' s")
	} else {
		add("<unk>")
		for i := range 256 {
			if i != 0xF0 { // one missing: characters of four bytes are unknown
				add(byteToken(i))
			}
		}
		for r := rune(' '); r < 127; r++ {
			add(string(r))
		}
		for _, r := range "▁é中文한е" {
			add(string(r))
		}
		merge("▁ t|h e|▁t he|▁ ▁|▁▁ ▁▁|i n|e r|1 2|12 3|a b|ab c|a bc|b c|> ▁|>▁ <|o n|中 文")
	}
	m := map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges}
	for k, v := range model {
		m[k] = v
	}
	file := map[string]any{"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": []any{}, "normalizer": nil,
		"pre_tokenizer": nil, "post_processor": nil, "decoder": nil, "model": m}
	for k, v := range parts {
		file[k] = v
	}
	out, err := json.Marshal(file)
	if err != nil {
		panic(err)
	}
	return string(out)
}

type dict = map[string]any

func token(id int, text string, flags string) dict {
	return dict{"id": id, "content": text, "special": strings.Contains(flags, "s"), "normalized": strings.Contains(flags, "n"),
		"lstrip": strings.Contains(flags, "l"), "rstrip": strings.Contains(flags, "r"), "single_word": strings.Contains(flags, "w")}
}

func byteLevelStep(prefix, regex bool) dict {
	return dict{"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": regex}
}

func split(p, behavior string, invert bool) dict {
	return dict{"type": "Split", "pattern": dict{"Regex": p}, "behavior": behavior, "invert": invert}
}

func sequence(steps ...any) dict { return dict{"type": "Sequence", "pretokenizers": steps} }

// cases are pipelines of components that no fetched tokenizer has.
func cases() map[string]string {
	out := map[string]string{}
	for _, b := range []string{"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		for _, invert := range []bool{false, true} {
			for i, p := range []string{`\s`, `[a-z]+|\d`, ` ?\p{L}+`} {
				out[fmt.Sprint("split", b, invert, i)] = small(true, dict{"pre_tokenizer": sequence(split(p, b, invert), byteLevelStep(false, false))}, nil)
			}
		}
		out["punctuation"+b] = small(true, dict{"pre_tokenizer": sequence(dict{"type": "Punctuation", "behavior": b}, byteLevelStep(false, true),
			dict{"type": "Digits", "individual_digits": false}, split("[0-9][0-9][0-9]", b, false))}, nil)
		out["string"+b] = small(false, dict{"pre_tokenizer": dict{"type": "Split", "pattern": dict{"String": " "}, "behavior": b, "invert": false}}, dict{"unk_token": "<unk>"})
	}
	for _, x := range []string{"always", "first", "never"} {
		for _, s := range []bool{false, true} {
			for _, tokens := range [][]any{{}, {token(0, "<s>", "s"), token(0, "the", "n"), token(0, " x", "")}} {
				out[fmt.Sprint("metaspace", x, s, len(tokens))] = small(false, dict{"added_tokens": tokens,
					"pre_tokenizer": dict{"type": "Metaspace", "replacement": "▁", "prepend_scheme": x, "split": s}}, dict{"unk_token": "<unk>", "fuse_unk": s, "byte_fallback": true})
			}
		}
	}
	for _, fuse := range []bool{false, true} {
		for _, fallback := range []bool{false, true} {
			for _, unk := range []any{nil, "<unk>"} {
				for _, ignore := range []bool{false, true} {
					out[fmt.Sprint("unk", fuse, fallback, unk, ignore)] = small(false, dict{"normalizer": dict{"type": "Replace", "pattern": dict{"String": " "}, "content": "▁"}},
						dict{"unk_token": unk, "fuse_unk": fuse, "byte_fallback": fallback, "ignore_merges": ignore})
				}
			}
		}
	}
	out["digits"] = small(true, dict{"pre_tokenizer": sequence(dict{"type": "Digits", "individual_digits": true}, byteLevelStep(false, true))}, nil)
	out["prefix space"] = small(true, dict{"pre_tokenizer": sequence(split(`\n+`, "Isolated", false), byteLevelStep(true, true))}, nil)
	out["prefix space alone"] = small(true, dict{"pre_tokenizer": byteLevelStep(true, false)}, nil)
	out["whitespace"] = small(false, dict{"pre_tokenizer": dict{"type": "Whitespace"}}, dict{"unk_token": "<unk>"})
	out["whitespace split"] = small(false, dict{"pre_tokenizer": sequence(dict{"type": "WhitespaceSplit"}, dict{"type": "Punctuation"})}, dict{"unk_token": "<unk>", "fuse_unk": true})
	out["bert"] = small(false, dict{"pre_tokenizer": dict{"type": "BertPreTokenizer"}}, dict{"unk_token": "<unk>"})
	out["delimiter"] = small(false, dict{"pre_tokenizer": dict{"type": "CharDelimiterSplit", "delimiter": "a"}}, dict{"unk_token": "<unk>"})
	for _, f := range []string{"NFC", "NFD", "NFKC", "NFKD"} {
		out[f] = small(true, dict{"normalizer": dict{"type": f}, "pre_tokenizer": byteLevelStep(false, true),
			"added_tokens": []any{token(0, "é", "n"), token(0, "\ufb01", ""), token(0, "Å", "n")}}, nil)
	}
	out["replace regex"] = small(true, dict{"normalizer": dict{"type": "Sequence", "normalizers": []any{dict{"type": "Replace", "pattern": dict{"Regex": " {2,}|\\d"}, "content": "_"},
		dict{"type": "Strip", "strip_left": true, "strip_right": true}, dict{"type": "NFC"}, dict{"type": "Prepend", "prepend": ">"}}}, "pre_tokenizer": byteLevelStep(false, true)}, nil)
	out["byte level normalizer"] = small(false, dict{"normalizer": dict{"type": "ByteLevel"}}, dict{"unk_token": "<unk>"})
	out["strip tokens"] = small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "added_tokens": []any{token(0, "<l>", "ls"), token(0, "<r>", "r"), token(0, "<b>", "lr"),
		token(0, "in", "w"), token(0, " ", "l"), token(0, "\n", ""), token(0, "</", "n"), token(0, "</s>", "s"), token(0, "</s><r>", "s")}}, nil)
	out["normalized tokens"] = small(false, dict{"normalizer": dict{"type": "Sequence", "normalizers": []any{dict{"type": "Prepend", "prepend": "▁"}, dict{"type": "Replace", "pattern": dict{"String": " "}, "content": "▁"}}},
		"added_tokens": []any{token(7, "the", "nrl"), token(9999, "a b", "n"), token(5, "<s>", "sr"), token(5, "<|x|>", "sr"), token(6, "in", "nw")}}, dict{"unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true})
	out["affixes"] = small(false, dict{"pre_tokenizer": dict{"type": "WhitespaceSplit"}}, dict{"unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>",
		"vocab": dict{"<unk>": 0, "a": 1, "##b": 2, "##b</w>": 3, "ab": 4, "a</w>": 5, "ab</w>": 6, "##a": 7, "##a</w>": 8, "aba": 9}, "merges": []any{[]any{"a", "##b"}, []any{"a", "##b</w>"}, []any{"ab", "##a"}}})
	out["byte affix"] = small(true, dict{"pre_tokenizer": byteLevelStep(false, true)}, dict{"end_of_word_suffix": "</w>", "unk_token": "a"})
	out["template"] = small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "post_processor": dict{"type": "Sequence", "processors": []any{byteLevelStep(false, true), dict{"type": "TemplateProcessing",
		"single": []any{dict{"SpecialToken": dict{"id": "B", "type_id": 0}}, dict{"Sequence": dict{"id": "A", "type_id": 0}}, dict{"SpecialToken": dict{"id": "E", "type_id": 0}}}, "pair": []any{dict{"Sequence": dict{"id": "A", "type_id": 0}}, dict{"Sequence": dict{"id": "B", "type_id": 0}}},
		"special_tokens": dict{"B": dict{"id": "B", "ids": []any{1, 2}, "tokens": []any{"b", "c"}}, "E": dict{"id": "E", "ids": []any{3}, "tokens": []any{"e"}}}}}}}, nil)
	out["roberta"] = small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "post_processor": dict{"type": "RobertaProcessing", "sep": []any{"x", 9}, "cls": []any{"y", 8}, "trim_offsets": true, "add_prefix_space": false}}, nil)
	out["no pre-tokenizer"] = small(false, nil, dict{"unk_token": "<unk>", "byte_fallback": true, "fuse_unk": true})
	out["one id twice"] = small(false, nil, dict{"vocab": dict{"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "aab": 5, "aa": 6, "▁": 7},
		"merges": []any{"a b", "b c", "a bc", "ab c", "a a", "aa b", "a ab"}})
	return out
}

func TestComponents(t *testing.T) {
	ref := startOracle(t)
	for name, file := range cases() {
		t.Run(name, func(t *testing.T) {
			var ok struct{ OK bool }
			if err := ref.Ask(map[string]any{"op": "load", "name": name, "json": file}, &ok); err != nil {
				t.Fatalf("the reference refuses it: %v", err)
			}
			tok, err := Parse([]byte(file), Options{WordCache: 1024})
			if err != nil {
				t.Fatal(err)
			}
			c := newCorpus(t, 3, tok)
			c.pieces = append(c.pieces, slices.Repeat(strings.Split("<l>| <r> | in |in|the| the|a b|abc|ab|aab|aaab|123|  |\n|<s>|<b>|</s>|▁|>▁<|x|é|\U0001f600|a", "|"), 60)...)
			compare(t, ref, name, tok, c, max(400, fuzzStrings(t)/20))
		})
	}
}

func TestRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, c := range map[string]struct{ file, names string }{
		"model":         {small(true, nil, dict{"type": "Unigram"}), `"Unigram"`},
		"dropout":       {small(true, nil, dict{"dropout": 0.1}), "dropout 0.1"},
		"normalizer":    {small(true, dict{"normalizer": dict{"type": "Lowercase"}}, nil), `"Lowercase"`},
		"pre-tokenizer": {small(true, dict{"pre_tokenizer": dict{"type": "UnicodeScripts"}}, nil), `"UnicodeScripts"`},
		"post":          {small(true, dict{"post_processor": dict{"type": "New"}}, nil), `"New"`},
		"regex":         {small(true, dict{"pre_tokenizer": split(`(?=a+)b`, "Isolated", false)}, nil), "look-ahead"},
		"behavior":      {small(true, dict{"pre_tokenizer": split(`a`, "Odd", false)}, nil), `"Odd"`},
		"version":       {small(true, dict{"version": "2.0"}, nil), `"2.0"`},
		"merge":         {small(true, nil, dict{"merges": []any{"a zzz"}}), "merge 0"},
		"same text":     {small(true, dict{"normalizer": dict{"type": "NFC"}, "added_tokens": []any{token(0, "e\u0301", "n"), token(0, "é", "n")}}, nil), "same text"},
		"first":         {small(false, dict{"pre_tokenizer": sequence(dict{"type": "Whitespace"}, dict{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})}, nil), "Metaspace"},
		"not JSON":      {`{"version": `, "JSON"},
	} {
		_, err := Parse([]byte(c.file), Options{})
		if err == nil || !strings.Contains(err.Error(), c.names) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v does not name %s", name, err, c.names)
		}
	}
}
