package predict

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"

	"warmroute/index"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/kvevents"
	"warmroute/prefixhash"
)

// Answer is the answer to a query.
type Answer struct {
	Cached   int    `json:"cached"` // Device and Host
	Device   int    `json:"device"` // taken from the GPU
	Host     int    `json:"host"`   // loaded from CPU memory
	FullOnly int    `json:"full_attention_only"`
	Exact    bool   `json:"exact"`
	Why      string `json:"why,omitempty"`
}

const model = "model"

var replica = index.Holder{Replica: "replica"}

// Predictor is the index of one replica, as the router keeps it.
type Predictor struct {
	index  *index.Index
	sink   sink
	id     index.HolderID
	reader *kvevents.Reader
	layout *cachelayout.Layout // of a header without one; may be nil
	seen   header
	life   uint64 // incarnation
	next   uint64 // sequence of the next frame
	any    bool   // a frame was read
	topic  string // of the frames, "" while none has one
	hole   bool   // frames of the publisher's life are missing

	last  uint64 // digest of the last frame
	found index.Found
	guess index.Guess
	asked bool // a query has no usage yet
}

// sink takes the batches: the index itself, in tests a sidecar before it.
type sink interface {
	Begin(index.Holder) uint64
	Apply(*index.Batch) (index.Result, error)
}

var seed = maphash.MakeSeed()

// New returns a predictor without events; l has the cache groups of the model, or
// is nil.
func New(l *cachelayout.Layout) (*Predictor, error) {
	x := index.New(index.Options{})
	p := &Predictor{index: x, sink: x, layout: l}
	p.id = x.ID(replica)
	return p, p.start(header{})
}

// start applies a header.
func (p *Predictor) start(h header) error {
	layout, err := h.layout()
	if err != nil {
		return err
	}
	if layout == nil {
		layout = p.layout
	}
	told, adapter, err := h.engine(layout)
	if err != nil {
		return err
	}
	var hashes []*prefixhash.VLLM
	if told.Rule != index.GroupRuleSGLang {
		if hashes, err = h.hashes(); err != nil {
			return err
		}
	}
	p.seen = h
	p.index.SetGroups(replica.Replica, told)
	p.reader = kvevents.NewReader(kvevents.ReaderOptions{Model: model, Adapter: adapter, Hashes: hashes, Unit: told.Unit, Presume: h.Algo != ""})
	p.any, p.hole, p.asked, p.topic = false, false, false, ""
	p.life = p.sink.Begin(replica)
	return nil
}

// Take reads one line of input. The answer is nil for a line that asks for none.
func (p *Predictor) Take(text []byte) (*Answer, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, notJSON(err)
	}
	switch {
	case l.Frame != nil:
		return nil, p.frame(l.Frame)
	case l.Query != nil:
		return p.query(l.Query)
	case l.Usage != nil:
		return nil, p.usage(*l.Usage)
	case l.Engine != "" || l.Version != "" || l.Algo != "" || l.NoneHash != "" || l.Assume != nil || l.Labels != nil || l.Model != nil:
		if p.any {
			return nil, errors.New("a header after the first frame is not taken")
		}
		return nil, p.start(l.header)
	}
	return nil, errors.New("neither a header nor a frame, a query or a usage")
}

// notJSON describes a broken line without quoting it.
func notJSON(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) && kind.Field != "" {
		field := strings.TrimPrefix(kind.Field, "header.")
		if strings.HasPrefix(kind.Value, "number ") { // the number itself may be a token
			return fmt.Errorf("%s: a number of another range, or not a whole one", field)
		}
		return fmt.Errorf("%s: a JSON %s where another type is wanted", field, kind.Value)
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	return errors.New("not a line of a known form")
}

// frame applies one frame. It does not count a frame that cannot be decoded: the
// sequence of the next one shows whether it was the publisher's.
func (p *Predictor) frame(f *frame) error {
	if p.topic != "" && f.Topic != "" && f.Topic != p.topic {
		return errors.New("frame: its topic is not that of the frames before: a capture is of one publisher")
	}
	b, err := p.reader.Read(f.Payload)
	if err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	digest := maphash.Bytes(seed, f.Payload)
	var missing error
	if f.Seq != nil {
		switch {
		case !p.any:
			p.hole = *f.Seq > 0
		case *f.Seq == p.next:
		case *f.Seq+1 == p.next && digest == p.last:
			return nil // a repeated frame
		case *f.Seq > p.next:
			missing = fmt.Errorf("frames %d to %d are missing: blocks before them are dropped", p.next, *f.Seq-1)
		default:
			missing = fmt.Errorf("frame %d after frame %d: the publisher has restarted", *f.Seq, p.next-1)
		}
		p.next = *f.Seq + 1
	}
	if missing != nil {
		p.life, p.hole = p.sink.Begin(replica), *f.Seq > 0
		if b, err = p.reader.Read(f.Payload); err != nil {
			return fmt.Errorf("frame: %w", err)
		}
	}
	p.any, p.last, p.topic = true, digest, cmp.Or(p.topic, f.Topic)
	b.Holder, b.Incarnation = replica, p.life
	if _, err := p.sink.Apply(b); err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	return missing
}

func (p *Predictor) query(q *query) (*Answer, error) {
	t := prompt{tokens: q.Tokens, arrives: q.InFlight != nil, flight: q.flight()}
	t.mix.CacheSalt, t.mix.Namespace = q.Salt, q.Space
	if q.LoRA != nil {
		t.mix.LoRA, t.mix.LoRAPath = prefixhash.LoRA{Name: *q.LoRA, Set: true}, q.Path
	}
	s := index.Scope{Model: model, LoRA: t.mix.LoRA, Scheme: index.SchemeTokens}
	a := &Answer{}
	p.asked = true
	groups, ok := p.index.ExplainGroups(p.id, s, &t)
	if !ok {
		a.Why = "no block was announced yet"
		p.guess = index.Guess{}
		return a, nil
	}
	s.Group, s.BlockSize = groups.Group, groups.Block
	usable := max(0, len(q.Tokens)-1) / s.BlockSize
	keys := t.AppendChain(nil, index.Keying{Unit: s.BlockSize})
	p.index.FindPrompt(&p.found, s, keys[:min(usable, len(keys))], &t)
	for m := range p.found.All() {
		if m.ID != p.id {
			continue
		}
		a.Device = int(m.Blocks) * s.BlockSize
		if m.Grouped {
			a.Device = int(m.Hit)
		}
		a.Host = int(m.Loaded)
		a.Cached = a.Device + a.Host
	}
	p.guess = p.index.Guess(p.id, s, keys, &t)
	a.FullOnly, a.Exact, a.Why = groups.FullOnly, groups.Trust.Exact, groups.Trust.Why
	if p.hole && a.Exact {
		a.Exact, a.Why = false, "frames are missing, so the prediction may be too low"
	}
	return a, nil
}

func (p *Predictor) usage(n int) error {
	switch {
	case n < 0:
		return errors.New("usage: want a number of tokens of at least 0")
	case !p.asked:
		return errors.New("usage without a query before it")
	}
	p.asked = false
	p.index.Answered(p.id, index.Scope{Model: model}, &p.guess, n, true)
	return nil
}

// Close returns the index's memory.
func (p *Predictor) Close() { p.index.Close() }

// prompt is a query's tokens with the values that are mixed into their blocks.
type prompt struct {
	tokens  []uint32
	mix     prefixhash.Request
	arrives bool
	flight  index.Flight
}

// InFlight implements index.Prompt's addition for prompts that are described as they arrive.
func (t *prompt) InFlight() (index.Flight, bool) { return t.flight, t.arrives }

// Tokens implements index.Prompt.
func (t *prompt) Tokens() int { return len(t.tokens) }

// Mixes implements index.Prompt's addition for values besides tokens.
func (t *prompt) Mixes() index.Mix {
	return index.Mix{Salt: t.mix.CacheSalt != nil && *t.mix.CacheSalt != "", LoRA: t.mix.LoRA.Set, Namespace: t.mix.Namespace != ""}
}

// AppendChain implements index.Prompt.
func (t *prompt) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	if c.Unit <= 0 {
		return dst
	}
	if c.Hash == nil {
		mix, b := c.Sight.Seen(t.mix), prefixhash.Blocks{Size: c.Unit, Ahead: c.Ahead}
		extras := mix.AppendExtras(nil, len(t.tokens)/c.Unit, c.Unit, c.Ahead)
		return prefixhash.AppendTokens(dst, prefixhash.TokenRoot(model, mix.LoRA), t.tokens, b, mix.InNamespace(extras, t.tokens, b))
	}
	root, ok := c.Hash.Root()
	if !ok {
		return dst
	}
	for _, d := range c.Hash.AppendDigests(nil, prefixhash.Position{Parent: root}, t.tokens, c.Unit, t.mix) {
		dst = append(dst, d.Key())
	}
	return dst
}
