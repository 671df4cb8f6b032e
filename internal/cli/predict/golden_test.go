package predict

import (
	"bytes"
	"encoding/json"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

var from = flag.String("captures", "testdata/*.jsonl.gz", "the captures to play")

// capture is one golden file: the events of vLLM's own scheduler, and its cached
// tokens for each query in between.
type capture struct {
	header map[string]json.RawMessage
	lines  []captured
}

type captured struct {
	text   []byte
	query  bool
	cached int
	full   int
}

func captures(t *testing.T) map[string]*capture {
	t.Helper()
	files, err := filepath.Glob(*from)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	all := map[string]*capture{}
	for _, name := range files {
		if read[name] == nil {
			read[name] = readCapture(t, name)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".jsonl.gz")] = read[name]
	}
	return all
}

// read are the captures that tests have read, which no test changes.
var read = map[string]*capture{}

func readCapture(t *testing.T, name string) *capture {
	t.Helper()
	c := &capture{}
	for line := range golden.Lines(t, name) {
		if c.header == nil {
			must.Do(t, json.Unmarshal(line, &c.header))
			continue
		}
		var l struct {
			Query  json.RawMessage `json:"query"`
			Cached int             `json:"cached"`
			Full   int             `json:"full_attention_only"`
		}
		must.Do(t, json.Unmarshal(line, &l))
		c.lines = append(c.lines, captured{bytes.Clone(line), l.Query != nil, l.Cached, l.Full})
	}
	return c
}

// head is the header with only some of its fields.
func (c *capture) head(t *testing.T, fields ...string) []byte {
	t.Helper()
	h := map[string]json.RawMessage{}
	for _, f := range fields {
		if v, ok := c.header[f]; ok {
			h[f] = v
		}
	}
	return must.Get(json.Marshal(h))(t)
}

// score counts the predictions of a capture.
type score struct {
	queries, right, over, under, full int
	exact, exactWrong                 int
}

// newPredictor is closed at the test's end.
func newPredictor(t testing.TB) *Predictor {
	t.Helper()
	p := must.Get(New(nil))(t)
	t.Cleanup(p.Close)
	return p
}

// play feeds a capture.
func (c *capture) play(t *testing.T, head []byte) (s score) {
	t.Helper()
	p := newPredictor(t)
	return c.ask(t, p, head)
}

// ask is play with a predictor.
func (c *capture) ask(t *testing.T, p *Predictor, head []byte) (s score) {
	t.Helper()
	must.Get(p.Take(head))(t)
	for i, l := range c.lines {
		a, err := p.Take(l.text)
		if err != nil {
			t.Fatalf("line %d: %v", i+2, err)
		}
		if !l.query {
			continue
		}
		s.queries++
		right := a.Cached == l.cached
		switch {
		case right:
			s.right++
		case a.Cached > l.cached:
			s.over++
		default:
			s.under++
		}
		if a.FullOnly == l.full {
			s.full++
		}
		if a.Exact {
			s.exact++
			if !right {
				s.exactWrong++
			}
		}
	}
	return s
}

func jsonInt(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestCapturesAssumed(t *testing.T) {
	for name, c := range captures(t) {
		t.Run(name, func(t *testing.T) {
			s := c.play(t, c.head(t, "version", "hash_algo", "none_hash", "assume", "cache_config_info"))
			if strings.HasPrefix(name, "0.21") { // events name no kinds
				if s.exact > 0 || s.over > 0 || !c.untold(t) && s.right != s.queries {
					t.Errorf("kinds are not named, but %d of %d were called exact and %d credited too much; %d right", s.exact, s.queries, s.over, s.right)
				}
				return
			}
			if s.right != s.queries {
				t.Errorf("%d of %d right, %d too much, %d too little; full %d", s.right, s.queries, s.over, s.under, s.full)
			}
			least := 90
			if strings.Contains(name, "-report-") { // blocks announced again may be a copy: prompts with such blocks are not called exact
				least = 30
			}
			if s.exactWrong > 0 || s.exact*100 < s.queries*least {
				t.Errorf("%d of %d called exact, %d of them wrong", s.exact, s.queries, s.exactWrong)
			}
			if s.full != s.queries {
				t.Errorf("full attention alone: %d of %d right", s.full, s.queries)
			}
		})
	}
}

// untold: the events name no kinds, and some group is not full attention.
func (c *capture) untold(t *testing.T) bool {
	t.Helper()
	var version string
	var groups []struct{ Kind string }
	if json.Unmarshal(c.header["version"], &version) != nil || json.Unmarshal(c.header["groups"], &groups) != nil {
		t.Fatal("header")
	}
	for _, g := range groups {
		if g.Kind != "full_attention" {
			return strings.HasPrefix(version, "0.21")
		}
	}
	return false
}

// TestCapturesAlone: from the events alone, nothing that is called exact is wrong.
func TestCapturesAlone(t *testing.T) {
	for name, c := range captures(t) {
		s := c.play(t, c.head(t, "version"))
		if strings.Contains(name, "-ahead-") { // the events say that nobody drops one
			if s.exactWrong > 0 || s.exact == 0 {
				t.Errorf("%s: %d of %d called exact, %d of them wrong", name, s.exact, s.queries, s.exactWrong)
			}
			continue
		}
		if s.exact > 0 {
			t.Errorf("%s: %d of %d called exact, though nobody said whether blocks are dropped", name, s.exact, s.queries)
		}
	}
}
