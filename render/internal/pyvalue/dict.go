package pyvalue

import (
	"fmt"
	"iter"
	"math"
	"math/big"
	"strings"

	"warmroute/render/work"
)

// smallDict is the length up to which a Dict has no index: comparing so few keys is
// cheaper than hashing, and chat messages have 2–6 keys.
const smallDict = 8

type dictEntry struct {
	key, value any
}

// Dict is a Python dict: ordered by first insertion, keys compared as Python
// compares them. The zero value is an empty dict.
type Dict struct {
	entries []dictEntry
	index   map[any]int // by hashKey; nil in a small dict
	odd     bool        // a key is not a plain string
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// NewDictOf returns an empty dict with memory for n entries. Up to few entries, as many
// as a message or a part of a message has, dict and entries are one allocation.
func NewDictOf(n int) *Dict {
	const few = 4
	if n > few {
		return &Dict{entries: make([]dictEntry, 0, n)}
	}
	d := &struct {
		Dict
		room [few]dictEntry
	}{}
	d.entries = d.room[:0]
	return &d.Dict
}

// Len returns len(d).
func (d *Dict) Len() int { return len(d.entries) }

// At returns the i-th entry in order.
func (d *Dict) At(i int) (key, value any) {
	e := &d.entries[i]
	return e.key, e.value
}

// All yields the entries in order.
func (d *Dict) All() iter.Seq2[any, any] {
	return func(yield func(any, any) bool) {
		for i := range d.entries {
			if !yield(d.entries[i].key, d.entries[i].value) {
				return
			}
		}
	}
}

// Get returns d[k]. An unhashable k is not found.
func (d *Dict) Get(k any) (any, bool) {
	if s, ok := k.(string); ok {
		return d.GetString(s)
	}
	i := d.find(k)
	if i < 0 {
		return nil, false
	}
	return d.entries[i].value, true
}

// GetString is Get for a key that is a string, without boxing it.
func (d *Dict) GetString(s string) (any, bool) {
	if d.index == nil {
		for i := range d.entries {
			if t, ok := d.entries[i].key.(string); ok && t == s {
				return d.entries[i].value, true
			}
		}
		if d.odd {
			if i := d.findSubclass(s); i >= 0 {
				return d.entries[i].value, true
			}
		}
		return nil, false
	}
	if i, ok := d.index[s]; ok {
		return d.entries[i].value, true
	}
	return nil, false
}

// findSubclass returns the index of a key with the text s that is a subclass of str, or
// -1.
func (d *Dict) findSubclass(s string) int {
	for i := range d.entries {
		if t, ok := d.entries[i].key.(Texter); ok && t.PyText() == s {
			return i
		}
	}
	return -1
}

// Set does d[k] = v. It panics if k is unhashable; see Hashable.
func (d *Dict) Set(k, v any) {
	if i := d.find(k); i >= 0 {
		d.entries[i].value = v
		return
	}
	d.add(k, v)
}

func (d *Dict) add(k, v any) {
	d.entries = append(d.entries, dictEntry{k, v})
	if _, ok := k.(string); !ok {
		d.odd = true
	}
	switch {
	case d.index != nil:
		d.index[mustHash(k)] = len(d.entries) - 1
	case len(d.entries) > smallDict:
		d.index = make(map[any]int, 2*len(d.entries))
		for i := range d.entries {
			d.index[mustHash(d.entries[i].key)] = i
		}
	}
}

// Delete does d.pop(k, None), and reports whether d had k.
func (d *Dict) Delete(k any) bool {
	i := d.find(k)
	if i < 0 {
		return false
	}
	d.entries = append(d.entries[:i], d.entries[i+1:]...)
	if d.index != nil {
		clear(d.index)
		for i := range d.entries {
			d.index[mustHash(d.entries[i].key)] = i
		}
	}
	return true
}

// Copy returns d.copy(), which shares the values.
func (d *Dict) Copy() *Dict {
	c := &Dict{entries: append([]dictEntry(nil), d.entries...), odd: d.odd}
	if d.index != nil {
		c.index = make(map[any]int, len(d.index))
		for k, i := range d.index {
			c.index[k] = i
		}
	}
	return c
}

func (d *Dict) find(k any) int {
	if d.index == nil {
		if s, ok := k.(string); ok {
			for i := range d.entries {
				if t, ok := d.entries[i].key.(string); ok && t == s {
					return i
				}
			}
			if d.odd {
				return d.findSubclass(s)
			}
			return -1
		}
	}
	h, ok := hashKey(k)
	if !ok {
		return -1
	}
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if g, ok := hashKey(d.entries[i].key); ok && g == h {
			return i
		}
	}
	return -1
}

// Hashable reports whether v has a hash(v). Lists, dicts and tuples that hold one have
// none.
func Hashable(v any) bool {
	_, ok := hashKey(v)
	return ok
}

// ChargeHash charges for hashing k; the hash of a tuple writes the tuple out.
func ChargeHash(b *work.Budget, k any) {
	switch k := k.(type) {
	case string:
		b.Read(len(k))
	case *big.Int:
		b.Make(k.BitLen() / 4)
	case *Tuple:
		b.Make(hashBytes(b, k, 0))
	case Texter:
		b.Read(len(k.PyText()))
	}
}

// hashBytes returns the number of bytes that the hash of t writes: each item once for
// each tuple around it.
func hashBytes(b *work.Budget, t *Tuple, depth int) (n int) {
	for _, it := range t.Items {
		b.Step(16)
		switch it := it.(type) {
		case string:
			n += len(it)
		case *big.Int:
			n += it.BitLen() / 8
		case *Tuple:
			if depth < maxNesting {
				n += hashBytes(b, it, depth+1)
			}
		}
		n += 64
	}
	b.Make(4 * n)
	return n
}

func mustHash(k any) any {
	h, ok := hashKey(k)
	if !ok {
		panic(fmt.Sprintf("pyvalue: unhashable key of type %s", TypeName(k)))
	}
	return h
}

type (
	noneKey  struct{}
	bigKey   string
	tupleKey string
)

// hashKey returns a comparable Go value for a key. The values of two keys are equal if
// and only if Python calls the keys equal.
func hashKey(v any) (any, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case nil:
		return noneKey{}, true
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	case int64:
		return v, true
	case *big.Int:
		return bigHash(v), true
	case float64:
		return floatKey(v), true
	case *Tuple:
		return tupleHash(v)
	case Texter:
		return v.PyText(), true
	case Hasher:
		return v.PyHash()
	case *List, *Dict:
		return nil, false
	}
	return v, true
}

func floatKey(f float64) any {
	if f != math.Trunc(f) || math.IsInf(f, 0) {
		return f // NaN is not equal to itself in Go either
	}
	if f >= -(1<<63) && f < 1<<63 {
		return int64(f)
	}
	b, _ := big.NewFloat(f).Int(nil)
	return bigHash(b)
}

func bigHash(b *big.Int) bigKey {
	key := string(b.Bytes())
	if b.Sign() < 0 {
		key = "-" + key
	} else {
		key = "+" + key
	}
	return bigKey(key)
}

func tupleHash(t *Tuple) (any, bool) {
	var b strings.Builder
	for _, it := range t.Items {
		h, ok := hashKey(it)
		if !ok {
			return nil, false
		}
		s := fmt.Sprintf("%T:%v", h, h)
		fmt.Fprintf(&b, "%d:%s,", len(s), s)
	}
	return tupleKey(b.String()), true
}
