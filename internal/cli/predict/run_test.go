package predict

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestBadLines: an unusable line is named by its number, and changes nothing of the
// answers to the rest.
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
	must.Do(t, Run(&clean, &want, nil))
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

// TestLostFrames: after missing frames the known blocks are dropped, and nothing is
// credited too much.
func TestLostFrames(t *testing.T) {
	c := captures(t)["0.32.0-gptoss-b16-s2"]
	p := newPredictor(t)
	must.Get(p.Take(c.head(t, "version", "assume", "hash_algo", "none_hash")))(t)
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

// TestHeadersSayWhatIsWrong: a header with impossible content is refused.
func TestHeadersSayWhatIsWrong(t *testing.T) {
	for assumed, want := range map[string]string{
		`{"rule":"0.5"}`:                `rule "0.5": want`,
		`{"eagle":"99"}`:                "want numbers of groups",
		`{"unit":-5}`:                   "unit -5: want a number from 0",
		`{"block":-1}`:                  "block -1: want",
		`{"chunk":1e300}`:               "chunk: a number of another range",
		`{"chunk":4611686018427387904}`: "chunk 4611686018427387904: want",
		`{"replay":-1}`:                 "replay -1: want",
		`{"rule":"0.32","eagle":"0,1","unit":8,"block":16}`: "",
	} {
		p := newPredictor(t)
		_, err := p.Take([]byte(`{"version":"0.32.0","assume":` + assumed + `}`))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s gives %v, want %q", assumed, err, want)
		}
	}
}

// TestErrorsNameNoTokens: a token that cannot be read is not repeated.
func TestErrorsNameNoTokens(t *testing.T) {
	p := newPredictor(t)
	_, err := p.Take([]byte(`{"query":{"tokens":[1,4294967777]}}`))
	if err == nil || strings.Contains(err.Error(), "4294967777") || !strings.Contains(err.Error(), "query.tokens") {
		t.Errorf("error %v", err)
	}
}

// TestAnotherLife: a capture that has a publisher's life from its first frame on is
// exact, also the life after a restart; a capture that begins later is not called so.
// Frames of another publisher are refused.
func TestAnotherLife(t *testing.T) {
	c := captures(t)["0.32.0-gptoss-b16-s2"]
	p := newPredictor(t)
	take := func(text []byte, complaint string) *Answer {
		a, err := p.Take(text)
		if complaint == "" && err != nil || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Fatalf("error %v, want %q", err, complaint)
		}
		return a
	}
	take(c.head(t, "version", "assume", "hash_algo", "none_hash"), "")
	play := func(from, to int, complaint string, exact bool) {
		queries := 0
		for _, l := range c.lines[from:to] {
			a := take(l.text, complaint)
			complaint = ""
			if a == nil {
				continue
			}
			queries++
			if a.Exact != exact || exact && a.Cached != l.cached || a.Cached > l.cached {
				t.Fatalf("%+v, vLLM found %d", a, l.cached)
			}
		}
		if queries == 0 {
			t.Fatal("no query")
		}
	}
	first := slices.IndexFunc(c.lines, func(l captured) bool { return !l.query })
	play(first, 300, "", true)
	play(first, 300, "has restarted", true)
	later := 320 + slices.IndexFunc(c.lines[320:], func(l captured) bool { return !l.query })
	play(later, len(c.lines), "are missing", false)
	other := bytes.Replace(c.lines[first].text, []byte(`"topic":"`), []byte(`"topic":"another`), 1)
	take(other, "its topic is not that of the frames before")
}

// TestRepeatedFrame: a frame that comes twice counts once.
func TestRepeatedFrame(t *testing.T) {
	c := captures(t)["0.32.0-fullfirst-mamba-s1"]
	p := newPredictor(t)
	must.Get(p.Take(c.head(t, "version", "assume")))(t)
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
		p := newPredictor(t)
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
		p := newPredictor(t)
		for i, payload := range [][]byte{a, b, a} {
			text, _ := json.Marshal(map[string]any{"frame": map[string]any{"seq": i, "payload": base64.StdEncoding.EncodeToString(payload)}})
			_, _ = p.Take(text)
			if a, err := p.Take([]byte(`{"query":{"tokens":[1,2,3,4,5,6,7,8]}}`)); err != nil || a.Cached < 0 || a.Cached >= 8 {
				t.Fatalf("%+v, %v", a, err)
			}
		}
	})
}
