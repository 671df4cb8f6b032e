package kvtest

import (
	"bytes"
	"encoding/binary"

	"github.com/vmihailenco/msgpack/v5"
)

// Generation is a wire generation of vLLM's KV events.
type Generation int

// The generations.
const (
	Arrays Generation = iota // as vLLM 0.21 and older: the tag is the first element
	Maps                     // as vLLM 0.32: a "type" key; fields with their default left out
)

// Tag is an event's tag.
type Tag string

// The tags of vLLM's events.
const (
	Stored  Tag = "BlockStored"
	Removed Tag = "BlockRemoved"
	Cleared Tag = "AllBlocksCleared"
)

// Event is one event to publish. A zero value is published as vLLM publishes an
// unset field: nil, or left out.
type Event struct {
	Kind      Tag
	Hashes    []uint64
	Parent    *uint64
	Tokens    []uint32
	BlockSize int
	LoRA      string   // "" = none
	Medium    string   // "" = "GPU"
	Extras    [][]any  // per block: strings, or []any{identifier, offset}
	Group     *int     // nil = 0 published in arrays, left out in maps
	Trailing  []string // unknown fields of a later version, behind all others
}

// Encoding says how events are written.
type Encoding struct {
	Generation Generation
	Bytes      bool // hashes as 32 bytes whose last eight are the number, not as ints
}

// Batch encodes one payload: time in seconds, the events, the data-parallel rank.
func (c Encoding) Batch(at float64, rank int, events ...Event) []byte {
	list := make([]any, 0, len(events))
	for _, e := range events {
		list = append(list, c.event(e))
	}
	return Pack([]any{at, list, rank})
}

// Pack encodes any value as msgpack, integers in their shortest form, as msgspec
// does. It is for payloads that Batch would not write. It panics on values that
// have no msgpack form.
func Pack(v any) []byte {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

// Fields is a map that keeps its order when packed.
type Fields []Field

// Field is one pair of Fields.
type Field struct {
	Name  string
	Value any
}

// EncodeMsgpack writes the pairs in order.
func (f Fields) EncodeMsgpack(enc *msgpack.Encoder) error {
	if err := enc.EncodeMapLen(len(f)); err != nil {
		return err
	}
	for _, p := range f {
		if err := enc.EncodeString(p.Name); err != nil {
			return err
		}
		if err := enc.Encode(p.Value); err != nil {
			return err
		}
	}
	return nil
}

func (c Encoding) hash(h uint64) any {
	if !c.Bytes {
		return h
	}
	// The other 24 bytes depend on the number too, as a digest's would.
	b := make([]byte, 24, 32)
	for i := range b {
		b[i] = byte(h>>(i%8*8)) ^ 0xa5
	}
	return binary.BigEndian.AppendUint64(b, h)
}

func (c Encoding) hashes(hs []uint64) []any {
	out := make([]any, 0, len(hs))
	for _, h := range hs {
		out = append(out, c.hash(h))
	}
	return out
}

func (c Encoding) event(e Event) any {
	var fields Fields
	medium := e.Medium
	if medium == "" {
		medium = "GPU"
	}
	var group any
	if e.Group != nil {
		group = *e.Group
	} else if c.Generation == Arrays {
		group = 0
	}
	switch e.Kind {
	case Stored:
		fields = Fields{
			{"block_hashes", c.hashes(e.Hashes)}, {"parent_block_hash", nil}, {"token_ids", ints(e.Tokens)},
			{"block_size", e.BlockSize}, {"lora_id", nil}, {"medium", medium}, {"lora_name", nil},
			{"extra_keys", rows(e.Extras)}, {"group_idx", group},
		}
		if e.Parent != nil {
			fields[1].Value = c.hash(*e.Parent)
		}
		if e.LoRA != "" {
			fields[4].Value, fields[6].Value = 1, e.LoRA
		}
	case Removed:
		fields = Fields{{"block_hashes", c.hashes(e.Hashes)}, {"medium", medium}, {"group_idx", group}}
	}
	for _, t := range e.Trailing {
		fields = append(fields, Field{t, t})
	}
	if c.Generation == Arrays {
		out := []any{string(e.Kind)}
		for _, f := range fields {
			out = append(out, f.Value)
		}
		return out
	}
	out := Fields{{"type", string(e.Kind)}}
	for _, f := range fields {
		if (f.Name == "extra_keys" || f.Name == "group_idx") && f.Value == nil {
			continue // a default: left out
		}
		out = append(out, f)
	}
	return out
}

func ints(tokens []uint32) []any {
	out := make([]any, 0, len(tokens))
	for _, t := range tokens {
		out = append(out, t)
	}
	return out
}

func rows(extras [][]any) any {
	if extras == nil {
		return nil
	}
	out := make([]any, 0, len(extras))
	for _, r := range extras {
		if r == nil {
			out = append(out, nil)
		} else {
			out = append(out, r)
		}
	}
	return out
}
