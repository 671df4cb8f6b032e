package kvevents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"warmroute/index"
	"warmroute/prefixhash"
	"warmroute/render/testkit/golden"
	"warmroute/render/testkit/must"
)

// capture is real traffic of one vLLM server: the requests, and the batches that
// it published because of each.
type capture struct {
	VLLM   string
	LoRA   []string
	Steps  []step
	Frames []struct {
		Seq     uint64
		Payload []byte `json:"payload_b64"`
	}
	Replay [][][]byte
}

type step struct {
	Name      string
	Body      map[string]any
	Tokens    []uint32
	Render    json.RawMessage
	Usage     usage
	EventSeqs []uint64 `json:"event_seqs"`
	Route     string   `json:"path"`
}

type usage struct {
	Prompt *struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Input *struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	CacheRead int `json:"cache_read_input_tokens"`
}

func (u usage) cached() int {
	switch {
	case u.Prompt != nil:
		return u.Prompt.Cached
	case u.Input != nil:
		return u.Input.Cached
	}
	return u.CacheRead
}

// tokens gives the step's prompt: /tokenize's answer, the body's own ids, or
// /render's; nil when the capture has none, or more than one prompt.
func (s step) tokens(t *testing.T) []uint32 {
	if s.Tokens != nil {
		return s.Tokens
	}
	type rendered struct {
		IDs []uint32 `json:"token_ids"`
	}
	var one rendered
	if json.Unmarshal(s.Render, &one) == nil && one.IDs != nil {
		return one.IDs
	}
	var many []rendered
	if json.Unmarshal(s.Render, &many) == nil && len(many) == 1 {
		return many[0].IDs
	}
	return nil
}

func captures(t testing.TB) map[string]*capture {
	t.Helper()
	paths, err := filepath.Glob("testdata/capture-*.json.gz")
	if err != nil || len(paths) != 4 {
		t.Fatalf("%d captures in testdata, want 4 (%v)", len(paths), err)
	}
	out := make(map[string]*capture)
	for _, p := range paths {
		c := new(capture)
		golden.Read(t, p, c)
		if len(c.Frames) == 0 || len(c.Steps) == 0 {
			t.Fatalf("%s: empty", p)
		}
		out[filepath.Base(p)] = c
	}
	return out
}

// truth reads payloads with another msgpack reader, in the plainest way, and keeps
// the blocks that the engine then holds.
type truth struct {
	held   map[uint64]int
	blocks int
	size   int
}

func (tr *truth) apply(t *testing.T, payload []byte) {
	t.Helper()
	var b []any
	must.Do(t, msgpack.Unmarshal(payload, &b))
	for _, raw := range b[1].([]any) {
		var tag string
		var hashes []any
		switch e := raw.(type) {
		case []any:
			tag = e[0].(string)
			if len(e) > 1 {
				hashes = e[1].([]any)
			}
			if tag == "BlockStored" {
				tr.size = int(number(e[4]))
			}
		case map[string]any:
			tag = e["type"].(string)
			hashes, _ = e["block_hashes"].([]any)
			if tag == "BlockStored" {
				tr.size = int(number(e["block_size"]))
			}
		}
		switch tag {
		case "AllBlocksCleared":
			tr.held = map[uint64]int{}
		case "BlockStored":
			for _, h := range hashes {
				tr.held[number(h)]++
				tr.blocks++
			}
		case "BlockRemoved":
			for _, h := range hashes {
				if tr.held[number(h)]--; tr.held[number(h)] == 0 {
					delete(tr.held, number(h))
				}
			}
		default:
			t.Fatalf("tag %q", tag)
		}
	}
}

func number(v any) uint64 {
	switch v := v.(type) {
	case []byte:
		var n uint64
		for _, b := range v[len(v)-8:] {
			n = n<<8 + uint64(b)
		}
		return n
	case uint64:
		return v
	case int64:
		return uint64(v)
	case uint32:
		return uint64(v)
	case uint16:
		return uint64(v)
	case uint8:
		return uint64(v)
	case int8:
		return uint64(v)
	}
	panic(fmt.Sprintf("%T is no hash", v))
}

const captureModel = "qwen-tiny"

// player feeds a capture to a sink without sockets.
type player struct {
	to    Sink
	world *Subscriber
}

func newPlayer(t testing.TB, to Sink) *player {
	t.Helper()
	s := must.Get(New(Options{Replica: "127.0.0.1:1", Model: captureModel, Endpoint: "tcp://127.0.0.1:1"}, to))(t)
	s.begin()
	return &player{to: to, world: s}
}

func (p *player) play(t testing.TB, seq uint64, payload []byte) {
	t.Helper()
	if err := p.world.apply(frame{seq: seq, payload: payload}); err != nil {
		t.Fatalf("frame %d: %v", seq, err)
	}
}

func requestOf(c *capture, s step) (r prefixhash.Request) {
	if salt, ok := s.Body["cache_salt"].(string); ok {
		r.CacheSalt = &salt
	}
	if len(c.LoRA) > 0 && s.Body["model"] == c.LoRA[0] {
		r.LoRA = prefixhash.LoRA{Name: c.LoRA[0], Set: true}
	}
	return r
}

// TestCaptureReplies: the raw replies of both versions are read.
func TestCaptureReplies(t *testing.T) {
	seen := map[int]bool{}
	for name, c := range captures(t) {
		if c.Replay == nil {
			continue
		}
		for i, frames := range c.Replay {
			seen[len(frames)] = true
			seq, payload, err := lastTwo(frames)
			if err != nil {
				t.Fatalf("%s: reply %d: %v", name, i, err)
			}
			if i == len(c.Replay)-1 {
				if seq != endOfReplay || len(payload) != 0 {
					t.Errorf("%s: last reply is no end marker", name)
				}
				continue
			}
			if seq != c.Frames[i].Seq || !bytes.Equal(payload, c.Frames[i].Payload) {
				t.Errorf("%s: reply %d differs from its live frame", name, i)
			}
		}
	}
	if !seen[3] || !seen[4] {
		t.Errorf("reply shapes seen: %v, want 3 and 4 frames", seen)
	}
}

// TestCaptureGenerations: the captures have the generations for which they were
// made.
func TestCaptureGenerations(t *testing.T) {
	arrays, dicts, raw, adapters, clears, removed := 0, 0, 0, 0, 0, 0
	for _, c := range captures(t) {
		for _, f := range c.Frames {
			b := must.Get(new(Decoder).Decode(f.Payload))(t)
			if c.VLLM == "0.21.0" {
				arrays++
			} else {
				dicts++
			}
			for i := range b.Events {
				e := &b.Events[i]
				if d := e.Digests(); d != nil {
					raw++
					for j := range d {
						if number(d[j]) != e.Hashes[j] {
							t.Fatal("a digest's low 64 bits are not its hash")
						}
					}
				}
				if e.HasParent && e.ParentDigest() != nil && number(e.ParentDigest()) != e.Parent {
					t.Fatal("a parent digest's low 64 bits are not its hash")
				}
				if e.LoRA.Set {
					adapters++
				}
				switch e.Kind {
				case index.Cleared:
					clears++
				case index.Removed:
					removed++
				}
			}
		}
	}
	for what, n := range map[string]int{"array batches": arrays, "map batches": dicts, "byte hashes": raw,
		"adapter events": adapters, "clears": clears, "removals": removed} {
		if n == 0 {
			t.Errorf("no %s in the captures", what)
		}
	}
}
