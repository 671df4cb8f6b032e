package vllmsim

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"warmroute/render/testkit/golden"
)

// scriptLine is one line of a script (test/vllm/scheduler.py --script): an instruction to
// vLLM's own scheduler, its events and its hits.
type scriptLine struct {
	Submit *struct {
		ID     string   `json:"id"`
		Tokens []uint32 `json:"tokens"`
		Answer []uint32 `json:"answer"`
		Most   int      `json:"max_tokens"`
		Salt   string   `json:"cache_salt"`
		LoRA   string   `json:"lora_name"`
		Report bool     `json:"report"`
	} `json:"submit"`
	Step  int    `json:"step"`
	Abort string `json:"abort"`
	Reset bool   `json:"reset"`
	Frame *struct {
		Payload []byte `json:"payload"`
	} `json:"frame"`
	Query *struct {
		ID string `json:"id"`
	} `json:"query"`
	Cached  int  `json:"cached"`
	Resumed bool `json:"resumed"`
}

// scriptHeader states how the scheduler was set up.
type scriptHeader struct {
	Algorithm string `json:"hash_algo"`
	Format    string `json:"hash_format"`
	BlockSize int    `json:"block_size"`
	Groups    []struct {
		Kind      Kind `json:"kind"`
		BlockSize int  `json:"block_size"`
		Window    int  `json:"window"`
		Chunk     int  `json:"chunk"`
	} `json:"groups"`
	Eagle     []int `json:"eagle"`
	Draft     int   `json:"num_speculative_tokens"`
	Retention *int  `json:"retention"`
	Blocks    int   `json:"num_gpu_blocks"`
	Batched   int   `json:"max_num_batched_tokens"`
	Longest   int   `json:"max_model_len"`
}

func (h scriptHeader) options() Options {
	o := Options{
		Version: V032, HashAlgorithm: h.Algorithm, HashBytes: h.Format == "bytes", BlockSize: h.BlockSize, Eagle: h.Eagle, Draft: h.Draft,
		Blocks: h.Blocks, MaxBatchedTokens: h.Batched, MaxModelLen: h.Longest, MaxRunning: 16, MaxLoRAs: 2, Retention: Dense,
		LoRAs: []LoRA{{Name: "adapter-1", Path: "/adapters/1"}, {Name: "adapter-2", Path: "/adapters/2"}},
	}
	if h.Retention != nil {
		o.Retention = *h.Retention
	}
	for _, g := range h.Groups {
		o.Groups = append(o.Groups, Group{Kind: g.Kind, BlockSize: g.BlockSize, Window: g.Window, Chunk: g.Chunk})
	}
	return o
}

// TestScripts gives an engine the instructions that vLLM's own scheduler got, and wants
// the same events in every step and the same hits of every request.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "scripts", "*.jsonl.gz"))
	if err != nil || len(files) < 15 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl.gz"), func(t *testing.T) {
			t.Parallel()
			var p *player
			for line := range golden.Lines(t, file) {
				if p == nil {
					var h scriptHeader
					if err := json.Unmarshal(line, &h); err != nil {
						t.Fatal(err)
					}
					p = newPlayer(t, h)
					continue
				}
				var l scriptLine
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatal(err)
				}
				p.line(&l)
			}
			p.endStep()
			if p.found == 0 || p.events == 0 {
				t.Fatalf("%d hits, %d events", p.found, p.events)
			}
		})
	}
}

// player is an engine that follows a script.
type player struct {
	t        *testing.T
	o        Options
	e        *engine
	w        wire
	seqs     map[string]*sequence
	expected map[string]int // hits of a request's last lookup before it ran
	want     []any          // events since the last step
	got      []event
	began    bool // a step was scheduled and not finished
	step     int
	found    int
	events   int
}

func newPlayer(t *testing.T, h scriptHeader) *player {
	o := h.options().withDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, o: o, w: wireOf(o, 0), seqs: map[string]*sequence{}, expected: map[string]int{}}
	p.e = newEngine(0, o, func(events []event) { p.got = append(p.got, events...) })
	return p
}

func (p *player) line(l *scriptLine) {
	switch {
	case l.Step > 0:
		p.endStep()
		p.step = l.Step
		_, p.began = p.e.schedule()
	case l.Frame != nil:
		p.want = append(p.want, decodeBatch(p.t, l.Frame.Payload)[1].([]any)...)
	case l.Query != nil && !l.Resumed:
		p.expected[l.Query.ID] = l.Cached
	case l.Submit != nil:
		p.endStep()
		p.submit(l)
	case l.Abort != "":
		p.endStep()
		p.e.abort(p.seqs[l.Abort])
		p.e.mu.Lock()
		p.e.dropAbortedLocked() // vLLM frees its blocks at once, not with the next step
		p.e.mu.Unlock()
	case l.Reset:
		p.endStep()
		if !p.e.reset() {
			p.t.Fatalf("after step %d: the reset is refused", p.step)
		}
	}
}

func (p *player) submit(l *scriptLine) {
	q := l.Submit
	s := &sequence{prompt: len(q.Tokens), tokens: q.Tokens, maxTokens: q.Most, salt: q.Salt, report: q.Report, out: make(chan token, q.Most+1)}
	s.next = func(n int) uint32 {
		if n < len(q.Answer) {
			return q.Answer[n]
		}
		return 0 // drawn after it was aborted
	}
	for i, a := range p.o.LoRAs {
		if q.LoRA == a.Name {
			s.lora = &adapter{LoRA: a, id: i + 1}
		}
	}
	p.seqs[q.ID] = s
	p.e.submit(s)
}

// endStep finishes the step that is under way and compares it.
func (p *player) endStep() {
	if !p.began {
		return
	}
	p.e.finishStep()
	p.began = false
	got := decodeBatch(p.t, p.w.append(nil, 0, p.got))[1].([]any)
	if len(got)+len(p.want) > 0 && !reflect.DeepEqual(got, p.want) {
		for i := range max(len(got), len(p.want)) {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = fmt.Sprint(got[i])
			}
			if i < len(p.want) {
				w = fmt.Sprint(p.want[i])
			}
			if g != w {
				p.t.Fatalf("step %d, event %d of %d, vLLM has %d:\n got %.600s\nwant %.600s", p.step, i, len(got), len(p.want), g, w)
			}
		}
	}
	p.events += len(got)
	p.got, p.want = nil, nil
	for id, want := range p.expected {
		s := p.seqs[id]
		if !s.admitted {
			continue
		}
		if s.hit != want {
			p.t.Fatalf("step %d, request %s of %d tokens: %d cached, vLLM found %d", p.step, id, s.prompt, s.hit, want)
		}
		if want > 0 {
			p.found++
		}
		delete(p.expected, id)
	}
}
