package tokenize

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// bytesAsIDs is an encoder whose ids are the text's bytes.
type bytesAsIDs struct{}

func (bytesAsIDs) Encode(dst []uint32, text []byte, special bool) []uint32 {
	if special {
		dst = append(dst, 1000)
	}
	for _, b := range text {
		dst = append(dst, uint32(b))
	}
	return dst
}

type twoPrompts struct{}

func (twoPrompts) Tokenize(path string, body []byte) ([][]uint32, error) {
	if path != "/v1/completions" {
		return nil, errors.New("no such route")
	}
	return [][]uint32{{1}, {2, uint32(len(body))}}, nil
}

func TestRun(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"text": "ab"}`, `{"ids":[97,98]}`},
		{`{"text": "", "add_special_tokens": true}`, `{"ids":[1000]}`},
		{`{"text": "\ud83d\ude00"}`, `{"ids":[240,159,152,128]}`},
		{`{"text": "\\ud83d"}`, `{"ids":[92,117,100,56,51,100]}`},
		{`{"path": "/v1/completions", "body": {}}`, `{"prompts":[[1],[2,2]]}`},
		{`{"path": "/x", "body": {}}`, `{"error":"no such route"}`},
		{`{"text": "\ud83d"}`, `{"error":"the text holds half`},
		{`{"text": "\ude00\ud83d"}`, `{"error":"the text holds half`},
		{`{"text": "\ud83d\n"}`, `{"error":"the text holds half`},
		{`{}`, `{"error":"the line needs`},
		{`not JSON`, `{"error":"the line is not`},
	} {
		var out strings.Builder
		if err := Run(strings.NewReader(c.in+"\n\n"+c.in), &out, Model{bytesAsIDs{}, twoPrompts{}}, ""); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], c.want) || lines[0] != lines[1] {
			t.Errorf("%s gives %q, want twice %s", c.in, lines, c.want)
		}
	}
	var out strings.Builder
	if err := Run(strings.NewReader(`{"path": "/v1/completions", "body": {}}`), &out, Model{Text: bytesAsIDs{}}, ""); err != nil || !strings.Contains(out.String(), "chat template") {
		t.Errorf("without requests: %q, %v", out.String(), err)
	}
}

type refusal struct{ error }

func (refusal) Refused() string { return "multimodal" }

type routed struct{}

func (routed) Tokenize(path string, body []byte) ([][]uint32, error) {
	switch string(body) {
	case "one":
		return [][]uint32{{1, 2}}, nil
	case "two":
		return [][]uint32{{1}, {2}}, nil
	case "refused":
		return nil, fmt.Errorf("wrapped: %w", refusal{errors.New("here not")})
	}
	return nil, errors.New("no ids for " + path)
}

func TestRunWithARoute(t *testing.T) {
	const want = `{"ids":[1,2]}
{"ids":[[1],[2]]}
{"refused":"multimodal"}
{"error":"no ids for /v1/completions"}
`
	var out strings.Builder
	if err := Run(strings.NewReader("one\ntwo\n\nrefused\nother\n"), &out, Model{bytesAsIDs{}, routed{}}, "/v1/completions"); err != nil || out.String() != want {
		t.Errorf("%v, %q, want %q", err, out.String(), want)
	}
	out.Reset()
	if err := Run(strings.NewReader("{}"), &out, Model{Text: bytesAsIDs{}}, "/v1/completions"); err != nil || !strings.Contains(out.String(), "chat template") {
		t.Errorf("without requests: %q, %v", out.String(), err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("closed") }

func TestRunReportsBrokenPipes(t *testing.T) {
	if err := Run(strings.NewReader(`{"text": "a"}`), failing{}, Model{Text: bytesAsIDs{}}, ""); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("error %v", err)
	}
}
