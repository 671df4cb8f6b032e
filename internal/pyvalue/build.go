package pyvalue

import (
	"unsafe"

	"warmroute/internal/jsontext"
)

// ParseArray is Parse of an array whose structure is known: data is its text. What
// Parse checks of strings, keys and depth was checked by whoever found the
// structure, keys that an object repeats included.
func ParseArray(data []byte, s jsontext.Structure) (*List, error) {
	b := builder{parser: parser{data: data}}
	n := 0
	for range s.Each {
		n++
	}
	list := &List{Items: make([]any, 0, n)}
	for element := range s.Each {
		b.gaps = element.Gaps
		v, err := b.build(element.Nodes)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, v)
	}
	return list, nil
}

// builder makes values of nodes.
type builder struct {
	parser
	slab Slab
	gaps jsontext.Gaps
}

// build makes the value that the nodes are the structure of.
func (b *builder) build(nodes []jsontext.Node) (any, error) {
	n := nodes[0]
	switch n.Kind {
	case jsontext.Object:
		return b.object(nodes[1:])
	case jsontext.Array:
		return b.array(nodes[1:])
	case jsontext.Other:
		b.pos = int(n.Start)
		return b.value(0)
	}
	s := b.string(n)
	if len(s) <= shortText {
		return b.box(s), nil
	}
	return s, nil
}

// shortText is the length of texts that are likely to be there twice: roles and types.
const shortText = 12

func (b *builder) string(n jsontext.Node) string {
	raw := b.data[n.Start+1 : n.End-1]
	if n.Kind == jsontext.Escaped {
		raw = jsontext.AppendTextAt(b.room(len(raw)), raw, b.gaps[n.More:])
		b.free = raw[len(raw):]
	}
	return unsafe.String(unsafe.SliceData(raw), len(raw))
}

// parts counts the values among nodes, of which each is followed by its own.
func parts(nodes []jsontext.Node) (n int) {
	for ; len(nodes) > 0; n++ {
		nodes = nodes[nodes[0].Size():]
	}
	return n
}

func (b *builder) object(nodes []jsontext.Node) (any, error) {
	d := b.slab.Dict(parts(nodes) / 2)
	for len(nodes) > 0 {
		key := b.box(b.string(nodes[0]))
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

func (b *builder) array(nodes []jsontext.Node) (any, error) {
	l := b.slab.List(parts(nodes))
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
