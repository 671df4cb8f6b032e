package pyvalue

import (
	"unsafe"

	"warmroute/render/internal/jsontext"
	"warmroute/render/work"
)

// Builder makes values of texts with a known structure. The reader that found the
// structure has made Parse's checks of strings, keys, repeated keys and depth. The zero
// value is ready.
type Builder struct {
	// Work is charged, and the caller of Append defers work.Catch; nil: nothing is
	// charged.
	Work *work.Budget
	parser
	slab Slab
	gaps jsontext.Gaps
	own  bool
}

// Append appends the values of which s is the structure; data is their text. With own
// they share no memory with data nor with values made without own; otherwise strings
// without escapes alias data.
func (b *Builder) Append(dst []any, data []byte, s jsontext.Stretch, own bool) ([]any, error) {
	if own != b.own {
		*b = Builder{own: own, Work: b.Work}
	}
	if b.parser.work == nil {
		b.parser.work = work.Or(b.Work)
	}
	b.data, b.gaps = data, s.Gaps
	if own {
		size := ownText(s) + spare
		b.work.Make(size)
		b.free = make([]byte, 0, size)
	}
	for nodes := range s.Each {
		v, err := b.build(nodes)
		if err != nil {
			return dst, err
		}
		dst = append(dst, v)
	}
	return dst, nil
}

// ownText returns the memory of the strings of s that are copied, in bytes.
func ownText(s jsontext.Stretch) (n int) {
	for i := range s.Nodes {
		node := &s.Nodes[i]
		if size := int(node.End - node.Start - 2); node.Kind == jsontext.Escaped || node.Kind == jsontext.Text && size > shortText {
			n += size
		}
	}
	return n
}

// OwnBytes returns an estimate of the memory of s's values with own: a message of a
// role and a text is five nodes, and takes 150 bytes in addition to the text.
func OwnBytes(s jsontext.Stretch) int64 { return int64(ownText(s)) + 32*int64(len(s.Nodes)) }

// build makes the value of which nodes are the structure.
func (b *Builder) build(nodes []jsontext.Node) (any, error) {
	n := nodes[0]
	b.work.Step(2)
	switch n.Kind {
	case jsontext.Object:
		return b.object(nodes[1:])
	case jsontext.Array:
		return b.array(nodes[1:])
	case jsontext.Other:
		b.pos = int(n.Start)
		return b.value(0)
	}
	return b.string(n, false), nil
}

// shortText is the greatest length of texts that are likely to repeat: keys, roles and
// types.
const shortText = 12

// string makes a boxed string. Equal keys share their memory, and equal short strings that are kept.
func (b *Builder) string(n jsontext.Node, key bool) any {
	b.work.Memory(boxBytes)
	raw, aliases := b.data[n.Start+1:n.End-1], n.Kind != jsontext.Escaped
	switch {
	case !aliases:
		b.work.Step(len(raw) / 16)
		raw = jsontext.AppendTextAt(b.room(len(raw)), raw, b.gaps[n.More:], b.work)
		b.free = raw[len(raw):]
	case b.own && len(raw) > shortText:
		raw = append(b.room(len(raw)), raw...)
		b.free = raw[len(raw):]
	}
	s := unsafe.String(unsafe.SliceData(raw), len(raw))
	switch {
	case len(s) > shortText:
		return s
	case !key && !b.own: // texts that repeat are among the usual ones
		if w := usual(s); w != nil {
			return w
		}
		return s
	}
	return b.box(s, b.own && aliases)
}

// parts returns the number of values among nodes; each value's own nodes follow it.
func parts(nodes []jsontext.Node) (n int) {
	for ; len(nodes) > 0; n++ {
		nodes = nodes[nodes[0].Size():]
	}
	return n
}

func (b *Builder) object(nodes []jsontext.Node) (any, error) {
	n := parts(nodes) / 2
	b.work.Step(2 * n)
	b.work.Memory(ownBytes + n*entryBytes)
	if n > smallDict {
		b.work.Memory(2 * n * indexBytes)
	}
	d := b.slab.Dict(n)
	for len(nodes) > 0 {
		key := b.string(nodes[0], true)
		size := nodes[1].Size()
		v, err := b.build(nodes[1 : 1+size])
		if err != nil {
			return nil, err
		}
		d.add(key, v)
		nodes = nodes[1+size:]
	}
	return d, nil
}

func (b *Builder) array(nodes []jsontext.Node) (any, error) {
	n := parts(nodes)
	b.work.Step(n)
	b.work.Memory(ownBytes + n*boxBytes)
	l := b.slab.List(n)
	for i := range l.Items {
		size := nodes[0].Size()
		v, err := b.build(nodes[:size])
		if err != nil {
			return nil, err
		}
		l.Items[i] = v
		nodes = nodes[size:]
	}
	return l, nil
}
