package predict

import (
	"encoding/json"
	"flag"
	"iter"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

var sglangFrom = flag.String("sglang", "testdata/sglang/*.jsonl.gz", "the captures of SGLang to play")

// sglangScore counts the predictions of a capture of SGLang.
type sglangScore struct {
	queries, right, over, under int
	tiers                       int // queries whose device and host parts are wrong
	exact, exactWrong           int
	why                         map[string]int
}

// sglangLookup is a lookup of a capture, and what SGLang took from its cache.
type sglangLookup struct {
	Query *struct {
		Tokens []uint32
		Salt   string `json:"cache_salt"`
		LoRA   string `json:"lora_name"`
	}
	Cached int
	Device *int
}

// sglangLookups feeds a capture to p, and yields its lookups with their predictions.
func sglangLookups(t *testing.T, p *Predictor, name string) iter.Seq2[sglangLookup, *Answer] {
	return func(yield func(sglangLookup, *Answer) bool) {
		for text := range golden.Lines(t, name) {
			var l sglangLookup
			must.Do(t, json.Unmarshal(text, &l))
			a := must.Get(p.Take(text))(t)
			if l.Query != nil && !yield(l, a) {
				return
			}
		}
	}
}

// playSGLang feeds a capture of SGLang's own caches as it is, header included.
func playSGLang(t *testing.T, name string) (s sglangScore) {
	t.Helper()
	s.why = map[string]int{}
	for l, a := range sglangLookups(t, newPredictor(t), name) {
		s.queries++
		switch {
		case a.Cached == l.Cached:
			s.right++
		case a.Cached > l.Cached:
			s.over++
		default:
			s.under++
		}
		if l.Device != nil && (a.Device != *l.Device || a.Host != l.Cached-*l.Device) {
			s.tiers++
		}
		if a.Exact {
			s.exact++
			if a.Cached != l.Cached {
				s.exactWrong++
			}
		} else {
			s.why[a.Why]++
		}
	}
	return s
}

// bounded has the captures whose events do not show everything: the prediction is an upper
// bound there, and says so.
var bounded = []string{"swa-", "mamba-", "p16-extrakey-s", "0.5.12-"}

// TestSGLang: what SGLang's events show is predicted right in every lookup, with the parts on
// GPU and in the host's memory. For the rest the prediction is never too low, and not called
// exact.
func TestSGLang(t *testing.T) {
	files, err := filepath.Glob(*sglangFrom)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	for _, name := range files {
		short := strings.TrimSuffix(filepath.Base(name), ".jsonl.gz")
		t.Run(short, func(t *testing.T) {
			s := playSGLang(t, name)
			t.Logf("%+v", s)
			for _, part := range bounded {
				if strings.Contains(short, part) {
					if s.under > 0 || s.exactWrong > 0 || s.exact > 0 {
						t.Errorf("%+v: want an upper bound that is not called exact", s)
					}
					return
				}
			}
			if s.right != s.queries || s.tiers > 0 || s.exactWrong > 0 {
				t.Errorf("%+v", s)
			}
			least := 97
			if strings.Contains(short, "dynamo") { // prompts with an adapter are not told apart from those with an extra_key, too
				least = 90
			}
			if s.exact*100 < s.queries*least {
				t.Errorf("%d of %d called exact: %v", s.exact, s.queries, s.why)
			}
		})
	}
}
