package predict

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestBadLines: what cannot be used is named by its line, and changes nothing of
// the answers to the rest.
func TestBadLines(t *testing.T) {
	c := captures(t)["0.32.0-gptoss-b16-s2"]
	var clean, dirty bytes.Buffer
	head := c.head(t, "version", "assume")
	fmt.Fprintf(&clean, "%s\n", head)
	fmt.Fprintf(&dirty, "not json\n%s\n", head)
	bad := []string{`{`, `[]`, `{"frame":{"topic":"kv","seq":99999,"payload":"%%%"}}`, `{"frame":{"seq":4}}`, `{"other":1}`,
		`{"query":{"tokens":"x"}}`, `{"query":{"tokens":[-1]}}`, `{"usage":-3}`, `{"version":"0.21.0"}`, `{"frame":{"payload":"gA=="}}`, strings.Repeat("[", 1000)}
	wrong := 1
	for i, l := range c.lines {
		fmt.Fprintf(&clean, "%s\n", l.text)
		fmt.Fprintf(&dirty, "%s\n", l.text)
		if i > 0 && i%7 == 0 { // behind the first frame, so that a header is late
			fmt.Fprintf(&dirty, "%s\n\n", bad[i/7%len(bad)])
			wrong++
		}
	}
	var want, got bytes.Buffer
	if err := Run(&clean, &want, nil); err != nil {
		t.Fatal(err)
	}
	if err := Run(&dirty, &got, nil); !errors.Is(err, ErrBadLine) {
		t.Fatalf("error %v", err)
	}
	var answers []string
	refused := 0
	for l := range strings.Lines(got.String()) {
		if strings.HasPrefix(l, `{"line":`) {
			refused++
			continue
		}
		answers = append(answers, l)
	}
	if strings.Join(answers, "") != want.String() {
		t.Error("bad lines changed answers")
	}
	if refused != wrong {
		t.Errorf("%d lines refused, want %d", refused, wrong)
	}
}

// TestLostFrames: where frames are missing, what was held is forgotten, and
// nothing is credited too much.
func TestLostFrames(t *testing.T) {
	c := captures(t)["0.32.0-gptoss-b16-s2"]
	p, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Take(c.head(t, "version", "assume", "hash_algo", "none_hash")); err != nil {
		t.Fatal(err)
	}
	frames, lost, over, exact := 0, 0, 0, 0
	for _, l := range c.lines {
		if !l.query {
			if frames++; frames%40 == 0 {
				continue
			}
		}
		a, err := p.Take(l.text)
		if err != nil {
			if !strings.Contains(err.Error(), "missing") {
				t.Fatal(err)
			}
			lost++
		}
		if l.query && a.Exact && lost > 0 {
			exact++
		}
		if l.query && frames%40 != 0 && a.Cached > l.cached {
			over++
		}
	}
	if lost == 0 || over > 0 || exact > 0 {
		t.Errorf("%d gaps noticed, %d credited too much, %d called exact behind a gap", lost, over, exact)
	}
}

// TestRepeatedFrame: a frame that comes twice counts once.
func TestRepeatedFrame(t *testing.T) {
	c := captures(t)["0.32.0-fullfirst-mamba-s1"]
	p, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Take(c.head(t, "version", "assume")); err != nil {
		t.Fatal(err)
	}
	for i, l := range c.lines {
		for range 2 {
			a, err := p.Take(l.text)
			if err != nil {
				t.Fatalf("line %d: %v", i, err)
			}
			if l.query && a.Cached != l.cached {
				t.Fatalf("line %d: predicted %d, hit %d", i, a.Cached, l.cached)
			}
		}
	}
}

func FuzzTake(f *testing.F) {
	f.Add([]byte(`{"version":"0.32.0","assume":{"rule":"0.32","eagle":"0,1","groups":{"0":{"kind":"mamba"}}}}`))
	f.Add([]byte(`{"frame":{"topic":"kv","seq":1,"payload":"kgGQ"}}`))
	f.Add([]byte(`{"query":{"tokens":[1,2,3],"cache_salt":"x"}}`))
	f.Add([]byte(`{"usage":16}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 2 {
			_, _ = p.Take(text)
			if a, err := p.Take([]byte(`{"query":{"tokens":[1,2,3,4,5,6,7,8]}}`)); err != nil || a.Cached < 0 || a.Cached >= 8 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	})
}

// FuzzFrames: whatever a publisher's bytes say, an answer is a number of tokens
// that the prompt has.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x92\x01\x91\x95\xabBlockStored\x91\x01\xc0\x92\x01\x02\x02"), []byte{1})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		p, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i, payload := range [][]byte{a, b, a} {
			text, _ := json.Marshal(map[string]any{"frame": map[string]any{"seq": i, "payload": base64.StdEncoding.EncodeToString(payload)}})
			_, _ = p.Take(text)
			if a, err := p.Take([]byte(`{"query":{"tokens":[1,2,3,4,5,6,7,8]}}`)); err != nil || a.Cached < 0 || a.Cached >= 8 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	})
}
