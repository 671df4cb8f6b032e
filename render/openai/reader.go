package openai

import (
	"slices"
	"sync/atomic"
	"unsafe"

	"warmroute/render/internal/jsontext"
	"warmroute/render/internal/prefixcache"
	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// A Reader parses bodies and remembers the beginnings of their arrays of messages:
// the places of strings, numbers and messages, and, after the first call of
// [Request.Values], the messages as values. Of a conversation's next turn it reads
// only the new messages. It is safe for concurrent use; a nil Reader remembers nothing.
//
// A Reader hashes an array in strides, from its opening bracket on. The entry of the
// k-th stride stands for all bytes up to its end and has the messages that end in it:
// equal bytes have an equal structure, whatever bytes follow.
type Reader struct {
	seed      prefixcache.Seed
	cache     *prefixcache.Cache[*known]
	positions bool // the reader keeps no values
}

// known is the structure that a stride adds to the strides before it.
type known struct {
	jsontext.Stretch      // of the messages that end in the stride
	end              int  // end of the last message so far; 0: none has ended
	media            bool // a message so far is not text alone
	keeps            bool // the Reader keeps the values
	values           atomic.Pointer[[]any]
}

type knownEntry = prefixcache.Entry[*known]

// keeps reports whether m keeps the values of k. It keeps none of prompts with media:
// this module does not render them, and an image is large.
func (m *Reader) keeps(k *known) bool { return !m.positions && !k.media && len(k.Nodes) > 0 }

// bytes returns the memory of k, including values that nobody has requested yet.
func (k *known) bytes() int64 {
	n := int64(unsafe.Sizeof(*k)) + k.Bytes()
	if k.keeps {
		n += pyvalue.OwnBytes(k.Stretch)
	}
	return n
}

const (
	// stride bounds the bytes that a next turn reads again, besides an unfinished message.
	stride = 2048
	// mostStrides bounds the strides of one array: 4 MB of text are more than any
	// context, and a larger image must not evict everything else.
	mostStrides = 2048
	// DefaultMemory is enough for 40 MB of conversations.
	DefaultMemory = 64 << 20
)

// NewReader returns a Reader that remembers at most limit bytes of structure and values.
func NewReader(limit int64) *Reader {
	return &Reader{seed: prefixcache.NewSeed(), cache: prefixcache.New[*known](limit)}
}

// NewPositionsReader returns a Reader that remembers positions alone, so that no message
// stays in memory after its request has ended. A next turn costs 1.5 times as much.
func NewPositionsReader(limit int64) *Reader {
	m := NewReader(limit)
	m.positions = true
	return m
}

// structure is memory for the structure of one array.
type structure struct {
	keep   bool
	base   int // of the array in the body
	nodes  []jsontext.Node
	gaps   jsontext.Gaps
	marks  []mark // the end of the last element in each stride
	hashes []prefixcache.Hash
	path   []*knownEntry
	fresh  []*known
}

// mark is the end of an element, in bytes of the array, in nodes and in gaps. media: it
// or an element before is not text alone.
type mark struct {
	end, nodes, gaps int
	media            bool
}

// mostNodes bounds the nodes, and the gaps, of a structure in the pool.
const mostNodes = 1 << 16

func (t *structure) reset() {
	if cap(t.nodes) > mostNodes || cap(t.gaps) > mostNodes {
		t.nodes, t.gaps = nil, nil
	}
	clear(t.path)
	clear(t.fresh)
	*t = structure{nodes: t.nodes[:0], gaps: t.gaps[:0], marks: t.marks[:0], hashes: t.hashes[:0], path: t.path[:0], fresh: t.fresh[:0]}
}

// nodeBytes is the memory of a node: in the structure, and in the copy that a known has.
const nodeBytes = 2 * int(unsafe.Sizeof(jsontext.Node{}))

// roomForNode makes room for a node. It doubles the memory: append, which adds a quarter, would
// leave twice as much of it behind.
func (t *structure) roomForNode() {
	if n := len(t.nodes); n == cap(t.nodes) {
		t.nodes = slices.Grow(t.nodes, max(n, 64))
	}
}

// leaf steps to the end of a value without parts, and adds it to the structure; its gaps
// begin at gaps.
func (s *scanner) leaf(kind jsontext.Kind, end, gaps int) {
	if s.keep {
		s.roomForNode()
		s.nodes = append(s.nodes, jsontext.Node{Start: uint32(s.i - s.base), End: uint32(end - s.base), More: uint32(gaps), Kind: kind})
	}
	s.i = end
}

// open adds the beginning of an object or array to the structure. close adds the end and
// steps over it.
func (s *scanner) open(kind jsontext.Kind) (at int) {
	if s.keep {
		s.roomForNode()
		s.nodes = append(s.nodes, jsontext.Node{Start: uint32(s.i - s.base), Kind: kind})
	}
	return len(s.nodes) - 1
}

func (s *scanner) close(at int) {
	s.i++
	s.depth--
	if s.keep && at >= 0 {
		n := &s.nodes[at]
		n.End, n.More = uint32(s.i-s.base), uint32(len(s.nodes)-at)
	}
}

// list steps over the route's array of messages and keeps its structure.
func (m *Reader) list(s *scanner, r *Request) Reason {
	s.reset()
	s.keep, s.base = true, s.i
	media := s.media
	s.media = false
	at := m.resume(s)
	s.depth++
	if at == 0 {
		s.i++
	} else {
		s.i += at
		s.charged = s.i
	}
	why := Reason("")
	switch c := s.peek(); {
	case c == ']':
		s.close(-1)
	case at > 0 && c != ',':
		return UnreadableJSON
	default:
		if at > 0 {
			s.i++
		}
		why = s.elements(-1, func() Reason {
			why := s.value()
			s.mark(mark{s.i - s.base, len(s.nodes), len(s.gaps), s.media})
			return why
		})
	}
	s.keep = false
	if why == "" {
		m.keepList(s, r)
	}
	s.media = s.media || media
	return why
}

// mark keeps the end of an element in place of an earlier end in the same stride.
func (t *structure) mark(m mark) {
	if last := len(t.marks) - 1; last >= 0 && (t.marks[last].end-1)/stride == (m.end-1)/stride {
		t.marks[last] = m
		return
	}
	t.marks = append(t.marks, m)
}

// resume finds the known strides and returns the end of the last message in them; 0:
// there is none.
func (m *Reader) resume(s *scanner) (at int) {
	if m == nil {
		return 0
	}
	m.hash(s, s.b[s.base:])
	last := m.cache.Deepest(len(s.hashes), func(i int) prefixcache.Hash { return s.hashes[i] })
	for e := last; e != nil; e = e.Parent {
		s.path = append(s.path, e)
	}
	slices.Reverse(s.path)
	if last == nil {
		return 0
	}
	s.media = last.Value.media
	return last.Value.end
}

// hash hashes the strides of a text.
func (m *Reader) hash(s *scanner, text []byte) {
	var h prefixcache.Hash
	for i := range min(len(text)/stride, mostStrides) {
		s.budget.Read(stride)
		h = m.seed.Add(h, text[i*stride:(i+1)*stride])
		s.hashes = append(s.hashes, h)
	}
}

// keepList gives the request the structure of its messages, and remembers the new part.
func (m *Reader) keepList(s *scanner, r *Request) {
	r.listed = true
	s.charge()
	if m == nil {
		r.rest = s.stretch(mark{}, s.all())
		return
	}
	strides, before := min((s.i-s.base)/stride, mostStrides), mark{}
	if strides > 0 {
		r.known = make([]*known, 0, strides)
	}
	var parent *knownEntry
	for _, parent = range s.path {
		k := parent.Value
		before = mark{end: k.end, media: k.media}
		r.add(k)
	}
	for i, k := 0, len(s.path); k < strides; k++ {
		to := before
		for ; i < len(s.marks) && s.marks[i].end <= (k+1)*stride; i++ {
			to = s.marks[i]
		}
		next := &known{Stretch: s.stretch(before, to), end: to.end, media: to.media}
		next.keeps = m.keeps(next)
		r.add(next)
		s.fresh = append(s.fresh, next)
		before = to
	}
	r.rest = s.stretch(before, s.all())
	m.cache.Remember(parent, len(s.fresh), func(i int) prefixcache.Hash { return s.hashes[len(s.path)+i] },
		func(i int, _ **known) (*known, int64) { return s.fresh[i], s.fresh[i].bytes() })
}

func (r *Request) add(k *known) {
	if len(k.Nodes) > 0 {
		r.known = append(r.known, k)
	}
}

// all returns the mark behind all nodes and gaps.
func (t *structure) all() mark { return mark{nodes: len(t.nodes), gaps: len(t.gaps)} }

// stretch returns a copy of the content between two marks.
func (t *structure) stretch(from, to mark) jsontext.Stretch {
	if to.nodes == from.nodes {
		return jsontext.Stretch{}
	}
	out := jsontext.Stretch{Nodes: slices.Clone(t.nodes[from.nodes:to.nodes])}
	if to.gaps > from.gaps {
		out.Gaps = slices.Clone(t.gaps[from.gaps:to.gaps])
	}
	for i := range out.Nodes {
		if n := &out.Nodes[i]; n.Kind == jsontext.Escaped {
			n.More -= uint32(from.gaps)
		}
	}
	return out
}

// Values returns the messages or input as values, if they are an array. The caller owns
// the list; other requests share its elements, so nobody may change them, and they may
// alias the body. Values charges b (nil: nothing), and its caller catches b's end. The
// type of the list is internal: Values is for package render.
func (r *Request) Values(b *work.Budget, f Field) (list *pyvalue.List, ok bool, err error) {
	if f != r.Route.list() || !r.listed {
		return nil, false, nil
	}
	made := pyvalue.Builder{Work: b}
	list = &pyvalue.List{Items: make([]any, 0, 4*len(r.known)+8)}
	for _, k := range r.known {
		kept := k.values.Load()
		if kept == nil {
			from := len(list.Items)
			if list.Items, err = made.Append(list.Items, r.raw[f], k.Stretch, k.keeps); err != nil {
				return nil, true, err
			}
			if k.keeps {
				values := slices.Clone(list.Items[from:])
				k.values.Store(&values)
			}
			continue
		}
		list.Items = append(list.Items, *kept...)
	}
	list.Items, err = made.Append(list.Items, r.raw[f], r.rest, false)
	return list, true, err
}
