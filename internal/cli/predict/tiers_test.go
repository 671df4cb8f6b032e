package predict

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/render/testkit/golden"
)

var tiersFrom = flag.String("tiers", "testdata/tiers/*.jsonl.gz", "the captures with a CPU tier to play")

// tierScore counts the predictions of a capture with a CPU tier.
type tierScore struct {
	queries, device, host, sum, over, exact, exactWrong int
}

// playTier feeds a capture of vLLM with a CPU tier, and with usage vLLM's count after each
// query. The capture's resets are not shown.
func playTier(t *testing.T, name string, usage bool) (s tierScore) {
	t.Helper()
	p := newPredictor(t)
	first := true
	for text := range golden.Lines(t, name) {
		var l struct {
			Query, Reset         json.RawMessage
			Cached, Device, Host int
			header
		}
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if first {
			first = false
			text, _ = json.Marshal(map[string]any{"version": l.Version, "hash_algo": l.Algo, "none_hash": l.NoneHash, "assume": map[string]any{"rule": l.Assume.Rule}})
		}
		if l.Reset != nil {
			continue
		}
		a, err := p.Take(text)
		if err != nil {
			t.Fatal(err)
		}
		if l.Query == nil {
			continue
		}
		s.count(a, l.Device, l.Host, l.Cached)
		if usage {
			if _, err := p.Take([]byte(`{"usage":` + jsonInt(l.Cached) + `}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func (s *tierScore) count(a *Answer, device, host, cached int) {
	s.queries++
	if a.Device == device {
		s.device++
	}
	if a.Host == host {
		s.host++
	}
	switch {
	case a.Cached == cached:
		s.sum++
	case a.Cached > cached:
		s.over++
	}
	if a.Exact {
		s.exact++
		if a.Device != device || a.Host != host {
			s.exactWrong++
		}
	}
}

func tierCaptures(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(*tiersFrom)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	return files
}

// TestTiers: what is taken from the GPU is right in every lookup, and with what is loaded from
// CPU memory in all but those after a reset that cleared it silently. These are not called
// exact, and fewer once a replica's counts are known.
func TestTiers(t *testing.T) {
	var alone, told tierScore
	for _, name := range tierCaptures(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".jsonl.gz"), func(t *testing.T) {
			s, u := playTier(t, name, false), playTier(t, name, true)
			if s.device != s.queries || u.device != u.queries {
				t.Errorf("from the GPU: %d and %d of %d right", s.device, u.device, s.queries)
			}
			if s.exactWrong > 0 || u.exactWrong > 0 || s.exact*100 < s.queries*88 || u.exact*100 < u.queries*95 {
				t.Errorf("%d of %d called exact, %d of them wrong; with counts %d, %d wrong", s.exact, s.queries, s.exactWrong, u.exact, u.exactWrong)
			}
			if s.sum*100 < s.queries*98 || u.sum < s.sum {
				t.Errorf("%d of %d right, with counts %d", s.sum, s.queries, u.sum)
			}
			if strings.Contains(name, "-simple") && s.sum != s.queries {
				t.Errorf("%d of %d right: no reset is silent here", s.sum, s.queries)
			}
			alone.add(s)
			told.add(u)
		})
	}
	if told.sum*1000 < told.queries*993 {
		t.Errorf("with counts, %d of %d right", told.sum, told.queries)
	}
	t.Logf("%+v; with counts %+v", alone, told)
}

func (s *tierScore) add(o tierScore) {
	s.queries, s.device, s.host, s.sum = s.queries+o.queries, s.device+o.device, s.host+o.host, s.sum+o.sum
	s.over, s.exact, s.exactWrong = s.over+o.over, s.exact+o.exact, s.exactWrong+o.exactWrong
}
