package openai

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
)

func reasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestRouteOf(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         Route
		ok           bool
	}{
		{"POST", "/v1/chat/completions", Chat, true},
		{"POST", "/v1/completions?x=1", Completions, true},
		{"POST", "/v1/responses", Responses, true},
		{"POST", "/v1/messages", Messages, true},
		{"POST", "/inference/v1/generate", Generate, true},
		{"POST", "/v1/chat/completions/batch", 0, false},
		{"GET", "/v1/responses", 0, false},
		{"POST", "/v1/responses/resp_1/cancel", 0, false},
		{"POST", "/v1/chat/completions/render", 0, false},
		{"POST", "/v1/embeddings", 0, false},
	} {
		if got, ok := RouteOf(c.method, c.path); got != c.want || ok != c.ok {
			t.Errorf("RouteOf(%q, %q) = %v, %v; want %v, %v", c.method, c.path, got, ok, c.want, c.ok)
		}
	}
}

func TestReasons(t *testing.T) {
	seen := map[Reason]bool{}
	for _, c := range []struct {
		name  string
		route Route
		body  string
		want  Reason
	}{
		{"empty", Chat, ``, UnreadableJSON},
		{"cut", Chat, `{"model":"m","messages":[{"role":"user","conte`, UnreadableJSON},
		{"trailing", Chat, `{"model":"m","messages":[]} x`, UnreadableJSON},
		{"comma", Chat, `{"model":"m","messages":[],}`, UnreadableJSON},
		{"control", Chat, "{\"model\":\"m\",\"messages\":[\"a\nb\"]}", UnreadableJSON},
		{"leading zero", Chat, `{"model":"m","messages":[01]}`, UnreadableJSON},
		{"dot", Chat, `{"model":"m","messages":[1.]}`, UnreadableJSON},
		{"bad escape", Chat, `{"model":"m","messages":["\x"]}`, UnreadableJSON},
		{"bad hex", Chat, `{"model":"m","messages":["\u12g4"]}`, UnreadableJSON},
		{"deep", Chat, `{"model":"m","messages":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, TooDeep},
		{"utf8", Chat, "{\"model\":\"m\",\"messages\":[\"a\xff\"]}", InvalidUTF8},
		{"cesu", Chat, "{\"model\":\"m\",\"messages\":[\"\xed\xa0\x80\"]}", InvalidUTF8},
		{"high alone", Chat, `{"model":"m","messages":["\ud83dx"]}`, LoneSurrogate},
		{"low alone", Chat, `{"model":"m","messages":["\ude00"]}`, LoneSurrogate},
		{"high high", Chat, `{"model":"m","messages":["\ud83d\ud83d\ude00"]}`, LoneSurrogate},
		{"dup top", Chat, `{"model":"m","messages":[],"a":1,"a":2}`, DuplicateKey},
		{"dup escaped", Chat, `{"model":"m","messages":[],"ab":1,"\u0061b":2}`, DuplicateKey},
		{"repeated", Chat, `{"model":"m","model":"n","messages":[]}`, RepeatedField},
		{"repeated escaped", Chat, `{"model":"m","messages":[],"mess\u0061ges":[]}`, RepeatedField},
		{"repeated, then no JSON", Chat, `{"model":"m","stream":true,"stream":true,`, RepeatedField},
		{"keys", Chat, `{"model":"m","messages":[],"o":{` + keys(MaxKeys+1) + `}}`, TooWide},
		{"prompts", Completions, `{"model":"m","prompt":["a"` + strings.Repeat(`,"a"`, MaxPrompts) + `]}`, TooWide},
		{"lists of ids", Completions, `{"model":"m","prompt":[[1]` + strings.Repeat(`,[1]`, MaxPrompts) + `]}`, TooWide},
		{"dup nested", Chat, `{"model":"m","messages":[{"role":"a","role":"b"}]}`, DuplicateKey},
		{"dup wide", Chat, `{"model":"m","messages":[],` + wide(40) + `"k7":1}`, DuplicateKey},
		{"array", Chat, `[1]`, NotObject},
		{"array tail", Chat, `[1] 2`, UnreadableJSON},
		{"int model", Chat, `{"model":5,"messages":[]}`, BadModel},
		{"no messages", Chat, `{"model":"m"}`, NoPrompt},
		{"null input", Responses, `{"model":"m","input":null}`, NoPrompt},
		{"string messages", Messages, `{"model":"m","messages":"x"}`, BadPrompt},
		{"object input", Responses, `{"model":"m","input":{}}`, BadPrompt},
		{"number prompt", Completions, `{"model":"m","prompt":5}`, BadPrompt},
		{"no prompts", Completions, `{"model":"m","prompt":[]}`, BadPrompt},
		{"mixed", Completions, `{"model":"m","prompt":["a",1]}`, BadPrompt},
		{"mixed ids", Completions, `{"model":"m","prompt":[1,"a"]}`, BadPrompt},
		{"mixed lists", Completions, `{"model":"m","prompt":[[1],2]}`, BadPrompt},
		{"empty list", Completions, `{"model":"m","prompt":[[1],[]]}`, BadPrompt},
		{"negative id", Completions, `{"model":"m","prompt":[-1]}`, BadPrompt},
		{"float id", Completions, `{"model":"m","prompt":[1.5]}`, BadPrompt},
		{"big id", Completions, `{"model":"m","prompt":[4294967296]}`, BadPrompt},
		{"empty salt", Chat, `{"model":"m","messages":[],"cache_salt":""}`, BadCacheSalt},
		{"int salt", Chat, `{"model":"m","messages":[],"cache_salt":1}`, BadCacheSalt},
	} {
		r, err := Parse(c.route, []byte(c.body))
		if got := reasonOf(err); got != c.want || r != nil {
			t.Errorf("%s: reason %q, want %q", c.name, got, c.want)
		}
		seen[c.want] = true
	}
	for _, r := range Reasons {
		if !seen[r] {
			t.Errorf("no case gives %q", r)
		}
	}
}

// keys are n different keys of an object.
func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"%d":1,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

func wide(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`"k` + string(rune('0'+i%10)) + strings.Repeat("x", i/10) + `":1,`)
	}
	return b.String()
}

func TestFields(t *testing.T) {
	body := []byte("\xef\xbb\xbf" + ` {"mod\u0065l" : "a\/b\ud83d\ude00", "messages":[{"role":"user","content":"hi"}] , "stream":true,
		"cache_salt":"s\"x","max_tokens":7,"max_completion_tokens":9,"temperature":NaN,"x":[-Infinity,1e5,-0.5],"tools":null,"tool_choice":"auto"}` + "\n")
	before := bytes.Clone(body)
	r, err := Parse(Chat, body)
	if err != nil {
		t.Fatal(err)
	}
	if r.Model != "a/b😀" || !r.Stream || r.MaxTokens != 9 || r.CacheSalt == nil || *r.CacheSalt != `s"x` || r.Multimodal || r.NoCacheRead {
		t.Errorf("got %+v", r)
	}
	if got := string(r.Raw(FieldMessages)); got != `[{"role":"user","content":"hi"}]` {
		t.Errorf("messages span %q", got)
	}
	if r.Raw(FieldTools) != nil || string(r.Raw(FieldToolChoice)) != `"auto"` {
		t.Errorf("tools %q, tool_choice %q", r.Raw(FieldTools), r.Raw(FieldToolChoice))
	}
	if !bytes.Equal(body, before) {
		t.Error("the body was changed")
	}
	if got := r.Raw(FieldMessages); cap(got) != len(got) {
		t.Error("a span must not let its holder write past its end")
	}
}

func TestCompletionPrompts(t *testing.T) {
	for _, c := range []struct {
		prompt string
		text   []string
		ids    [][]uint32
	}{
		{`"a\nb"`, []string{"a\nb"}, nil},
		{`["a", "" ,"\u00e9"]`, []string{"a", "", "é"}, nil},
		{`[ 1, 2 ,3]`, nil, [][]uint32{{1, 2, 3}}},
		{`[[1],[2,4294967295]]`, nil, [][]uint32{{1}, {2, 4294967295}}},
	} {
		r, err := Parse(Completions, []byte(`{"model":"m","prompt":`+c.prompt+`}`))
		if err != nil {
			t.Errorf("%s: %v", c.prompt, err)
			continue
		}
		if !reflect.DeepEqual(r.TextPrompts, c.text) || !reflect.DeepEqual(r.TokenPrompts, c.ids) {
			t.Errorf("%s: %q %v", c.prompt, r.TextPrompts, r.TokenPrompts)
		}
	}
}

// TestMaxTokens: a prompt must leave room for the limit, as vLLM reads it; a completion without one has vLLM's own.
func TestMaxTokens(t *testing.T) {
	for _, c := range []struct {
		route Route
		body  string
		want  int
	}{
		{Completions, `"prompt":"x"`, 16},
		{Completions, `"prompt":[1],"max_tokens":null`, 16},
		{Completions, `"prompt":[1],"max_tokens":5`, 5},
		{Completions, `"prompt":[1],"max_tokens":0,"echo":true`, 0},
		{Chat, `"messages":[]`, 0},
		{Chat, `"messages":[],"max_tokens":9,"max_completion_tokens":2000.0`, 2000},
		{Chat, `"messages":[],"max_tokens":2e3`, 2000},
		{Chat, `"messages":[],"max_tokens":"2000"`, 2000},
		{Chat, `"messages":[],"max_tokens":1e300`, math.MaxInt32},
		{Chat, `"messages":[],"max_tokens":NaN`, 0},
		{Chat, `"messages":[],"max_tokens":-Infinity`, 0},
		{Chat, `"messages":[],"max_tokens":2.5`, 0},
		{Chat, `"messages":[],"max_tokens":[2]`, 0},
		{Responses, `"input":"x","max_tokens":9`, 0},
		{Generate, `"token_ids":[1],"sampling_params":{}`, 0},
	} {
		r, err := Parse(c.route, []byte(`{"model":"m",`+c.body+`}`))
		if err != nil || r.MaxTokens != c.want {
			t.Errorf("%s %s: %+v, %v, want %d", c.route, c.body, r, err, c.want)
		}
	}
}

// TestGenerate: the ids are the prompt, unless some of them stand for media; what counts of
// the sampling is one level down.
func TestGenerate(t *testing.T) {
	type facts struct {
		ids                            [][]uint32
		salt                           string
		media, cold, repeated, streams bool
		most                           int
	}
	for _, c := range []struct {
		body string
		want facts
		why  Reason
	}{
		{`"token_ids":[1, 2,3],"sampling_params":{"max_tokens":7,"temperature":0},"stream":true`, facts{ids: [][]uint32{{1, 2, 3}}, most: 7, streams: true}, ""},
		{`"sampling_params":{"n":2},"token_ids":[ 4294967295 ],"cache_salt":"s"`, facts{ids: [][]uint32{{4294967295}}, salt: "s", repeated: true}, ""},
		{`"token_ids":[1],"sampling_params":{"n":1,"prompt_logprobs":0},"features":null`, facts{ids: [][]uint32{{1}}, cold: true}, ""},
		{`"token_ids":[1],"sampling_params":{"prompt_logprob_token_ids":[5],"skip_reading_prefix_cache":false}`, facts{ids: [][]uint32{{1}}}, ""},
		{`"token_ids":[1],"sampling_params":{"skip_reading_prefix_cache":true}`, facts{ids: [][]uint32{{1}}, cold: true}, ""},
		{`"token_ids":[1,9,9],"sampling_params":{},"features":{"mm_hashes":{"image":["h"]}}`, facts{media: true}, ""},
		{`"token_ids":[1],"sampling_params":{},"content_parts":[{"type":"image_url"}]`, facts{media: true}, ""},
		{`"token_ids":[1],"prompt":"x","messages":[]`, facts{ids: [][]uint32{{1}}}, ""},
		{`"token_ids":[]`, facts{}, BadPrompt},
		{`"token_ids":[1,-2]`, facts{}, BadPrompt},
		{`"token_ids":[[1]]`, facts{}, BadPrompt},
		{`"token_ids":"1"`, facts{}, BadPrompt},
		{`"prompt":[1]`, facts{}, NoPrompt},
		{`"token_ids":[1],"token_ids":[2]`, facts{}, RepeatedField},
		{`"token_ids":[1],"sampling_params":{"n":1,"n":2}`, facts{}, DuplicateKey},
	} {
		r, err := Parse(Generate, []byte(`{"model":"m",`+c.body+`}`))
		if err != nil {
			if c.why == "" || !errors.Is(err, errorOf[c.why]) {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		salt := ""
		if r.CacheSalt != nil {
			salt = *r.CacheSalt
		}
		got := facts{r.TokenPrompts, salt, r.Multimodal, r.NoCacheRead, r.Repeated, r.Stream, r.MaxTokens}
		if c.why != "" || !reflect.DeepEqual(got, c.want) || r.TextLen() != 0 || len(r.AppendText(nil, 10)) != 0 {
			t.Errorf("%s: %+v, want %+v (%s)", c.body, got, c.want, c.why)
		}
	}
}

func TestMultimodal(t *testing.T) {
	for _, c := range []struct {
		route Route
		body  string
		want  bool
	}{
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}`, true},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"image_url":"x"}]}]}`, true},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"input_\u0061udio"}]}]}`, true},
		{Chat, `{"model":"m","messages":[{"role":"user","content":"image_url"}],"tools":[{"type":"image_url"}]}`, false},
		{Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"image_url"}]}]}`, false},
		{Messages, `{"model":"m","messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}`, true},
		{Messages, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"type":"image"}}]}]}`, false},
		{Messages, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{}},{"type":"image"}]}]}`, true},
		{Responses, `{"model":"m","input":[{"role":"user","content":[{"type":"input_image"}]}]}`, true},
		{Responses, `{"model":"m","input":"x"}`, false},
		{Completions, `{"model":"m","prompt_embeds":"x"}`, true},
	} {
		r, err := Parse(c.route, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
		} else if r.Multimodal != c.want {
			t.Errorf("%s: multimodal %v", c.body, r.Multimodal)
		}
	}
}

func TestNoCacheRead(t *testing.T) {
	for _, c := range []struct {
		route Route
		extra string
		want  bool
	}{
		{Chat, ``, false},
		{Chat, `,"prompt_logprobs":0`, true},
		{Chat, `,"prompt_logprobs":null`, false},
		{Chat, `,"echo":true`, true},
		{Chat, `,"echo":1`, true},
		{Chat, `,"echo":1.0`, true},
		{Chat, `,"echo":"Yes"`, true},
		{Chat, `,"echo":"on"`, true},
		{Chat, `,"echo":0`, false},
		{Chat, `,"echo":"off"`, false},
		{Chat, `,"echo":null`, false},
		{Chat, `,"echo":false,"logprobs":true`, false},
		{Completions, `,"echo":true`, false},
		{Completions, `,"echo":true,"logprobs":1`, true},
		{Completions, `,"echo":"true","logprobs":0`, true},
		{Completions, `,"logprobs":1`, false},
		{Messages, `,"prompt_logprobs":1`, false},
	} {
		r, err := Parse(c.route, []byte(`{"model":"m","messages":[],"prompt":"x"`+c.extra+`}`))
		if err != nil || r.NoCacheRead != c.want {
			t.Errorf("%v %s: %+v %v", c.route, c.extra, r, err)
		}
	}
}

// TestRepeated: anything but one answer without beams may be several lookups; routes without
// these fields have one.
func TestRepeated(t *testing.T) {
	for _, c := range []struct {
		route Route
		extra string
		want  bool
	}{
		{Chat, ``, false},
		{Chat, `,"n":1`, false},
		{Chat, `,"n":null,"best_of":1,"use_beam_search":false`, false},
		{Chat, `,"n":2`, true},
		{Chat, `,"n":1.5`, true},
		{Chat, `,"n":"1"`, false},
		{Chat, `,"n":1.0,"best_of":1e0`, false},
		{Chat, `,"n":"2"`, true},
		{Chat, `,"\u006e":3`, true},
		{Chat, `,"use_beam_search":true`, true},
		{Completions, `,"best_of":4`, true},
		{Completions, `,"n":128,"best_of":1`, true},
		{Messages, `,"n":2`, false},
	} {
		r, err := Parse(c.route, []byte(`{"model":"m","messages":[],"prompt":"x"`+c.extra+`}`))
		if err != nil || r.Repeated != c.want {
			t.Errorf("%v %s: %+v %v", c.route, c.extra, r, err)
		}
	}
}

func text(t *testing.T, route Route, body string) string {
	t.Helper()
	r, err := Parse(route, []byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return string(r.AppendText(nil, math.MaxInt))
}

func TestAppendText(t *testing.T) {
	short := text(t, Chat, `{"model":"m","tools":[{"a":1}],"messages":[{"role":"user","content":"h\u00e9\n"}]}`)
	spaced := text(t, Chat, "{ \"messages\" : [ {\"role\": \"user\",\t\"content\":\"hé\\u000a\"}\n ], \"tools\":[ {\"a\" :1}],\"model\":\"m\"}")
	if short != spaced {
		t.Errorf("spacing or escapes matter:\n%q\n%q", short, spaced)
	}
	long := text(t, Chat, `{"model":"m","tools":[{"a":1}],"messages":[{"role":"user","content":"hé\n"},{"role":"assistant","content":"x"}]}`)
	if !strings.HasPrefix(long, short) || long == short {
		t.Errorf("a longer conversation must only append:\n%q\n%q", short, long)
	}
	if got := text(t, Completions, `{"model":"m","prompt":"a\tb"}`); got != "a\tb" {
		t.Errorf("a text prompt is itself, got %q", got)
	}
	if a, b := text(t, Responses, `{"model":"m","input":"x"}`), text(t, Responses, `{"model":"m","input":"x","instructions":"y"}`); a == b {
		t.Error("instructions must count")
	}
	if a, b := text(t, Messages, `{"model":"m","messages":[]}`), text(t, Messages, `{"model":"m","messages":[],"system":"y"}`); a == b {
		t.Error("system must count")
	}
}

// A text of at most so many bytes is the beginning of the whole text, wherever it ends.
func TestAppendTextUpToALimit(t *testing.T) {
	for _, tt := range []struct {
		route Route
		body  string
	}{
		{Chat, `{"model":"m","tools":[{"a":1}], "messages":[{"role":"user","content":"h\u00e9\n\ud83d\ude00\ud83d\ude00\\\"x"}, {"role":"user","content":[{"type":"text","text":"\u0000\u0000\u0000"}]}]}`},
		{Responses, `{"model":"m","input":"x\ty","instructions":"\u00e9"}`},
		{Completions, `{"model":"m","prompt":["a\tb","c","dd"]}`},
	} {
		r, err := Parse(tt.route, []byte(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		whole := r.AppendText(nil, math.MaxInt)
		if r.TextLen() < len(whole)-8 { // new lines and zero bytes
			t.Errorf("%s: TextLen %d of a text of %d bytes", tt.body, r.TextLen(), len(whole))
		}
		for most := range len(whole) + 2 {
			if got := r.AppendText(nil, most); string(got) != string(whole[:min(most, len(whole))]) {
				t.Errorf("%s: the first %d bytes: %q of %q", tt.body, most, got, whole)
			}
		}
	}
}

// The beginning of a long text costs no more than a short text's.
func TestAppendTextReadsNoMoreThanItNeeds(t *testing.T) {
	for _, letter := range []string{"a", `\u0000`, `\ud83d\ude00`} {
		r, err := Parse(Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"`+strings.Repeat(letter, 4<<20/len(letter))+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		if dst := r.AppendText(nil, 16<<10); len(dst) != 16<<10 || cap(dst) > 256<<10 {
			t.Errorf("%s: %d bytes in memory of %d", letter, len(dst), cap(dst))
		}
	}
}

// TestNoModel: vLLM then takes its base model.
func TestNoModel(t *testing.T) {
	for _, body := range []string{`{"messages":[]}`, `{"model":null,"messages":[]}`, `{"model":"","messages":[]}`} {
		if req, err := NewReader(DefaultMemory).Parse(Chat, []byte(body)); err != nil || req.Model != "" {
			t.Errorf("%s: %v", body, err)
		}
	}
}
