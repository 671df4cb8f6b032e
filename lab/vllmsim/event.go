package vllmsim

import (
	"encoding/binary"
	"math"
)

type eventKind uint8

const (
	blockStored eventKind = iota
	blockRemoved
	allBlocksCleared
)

// event is one KV cache event. Only stored events have more than hashes.
type event struct {
	kind      eventKind
	group     int
	hashes    []digest
	parent    digest // n == 0: none
	tokens    []uint32
	blockSize int
	lora      *adapter
	extra     [][]extraKey // one per hash, nil where a block has none
	session   string       // 0.32 only
}

// wire encodes batches as one vLLM release does: events are msgpack arrays in
// 0.21.0, maps in 0.32.0 (vllm/distributed/kv_events.py; msgspec leaves out
// fields that have their default value).
type wire struct {
	maps      bool
	hashBytes bool
	rank      int
	groups    []Group // for kv_cache_spec_kind and _sliding_window
}

// append encodes [ts, events, rank], ts in seconds since 1970.
func (w wire) append(dst []byte, ts float64, events []event) []byte {
	dst = appendArray(dst, 3)
	dst = binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(ts))
	dst = appendArray(dst, len(events))
	for i := range events {
		dst = w.appendEvent(dst, &events[i])
	}
	return appendInt(dst, int64(w.rank))
}

func (w wire) appendEvent(dst []byte, e *event) []byte {
	switch e.kind {
	case blockStored:
		return w.appendStored(dst, e)
	case blockRemoved:
		dst = w.appendHead(dst, "BlockRemoved", 3)
		dst = w.appendHashes(w.field(dst, "block_hashes"), e.hashes)
		dst = appendText(w.field(dst, "medium"), "GPU")
		return appendInt(w.field(dst, "group_idx"), int64(e.group))
	}
	return w.appendHead(dst, "AllBlocksCleared", 0)
}

func (w wire) appendStored(dst []byte, e *event) []byte {
	fields := 9
	if w.maps {
		fields = 9
		if len(e.extra) > 0 { // msgspec leaves out an empty list like a default
			fields++
		}
		if w.groups[e.group].Window > 0 {
			fields++
		}
		if e.session != "" {
			fields++
		}
	}
	dst = w.appendHead(dst, "BlockStored", fields)
	dst = w.appendHashes(w.field(dst, "block_hashes"), e.hashes)
	dst = w.field(dst, "parent_block_hash")
	if e.parent.n == 0 {
		dst = append(dst, msgpackNil)
	} else {
		dst = w.appendHash(dst, &e.parent)
	}
	dst = appendArray(w.field(dst, "token_ids"), len(e.tokens))
	for _, t := range e.tokens {
		dst = appendUint(dst, uint64(t))
	}
	dst = appendInt(w.field(dst, "block_size"), int64(e.blockSize))
	dst = w.field(dst, "lora_id")
	if e.lora == nil {
		dst = append(dst, msgpackNil)
	} else {
		dst = appendInt(dst, int64(e.lora.id))
	}
	dst = appendText(w.field(dst, "medium"), "GPU")
	dst = w.field(dst, "lora_name")
	if e.lora == nil {
		dst = append(dst, msgpackNil)
	} else {
		dst = appendText(dst, e.lora.Name)
	}
	if !w.maps || len(e.extra) > 0 {
		dst = appendExtra(w.field(dst, "extra_keys"), e.extra)
	}
	dst = appendInt(w.field(dst, "group_idx"), int64(e.group))
	if w.maps {
		g := w.groups[e.group]
		dst = appendText(w.field(dst, "kv_cache_spec_kind"), string(g.Kind))
		if g.Window > 0 {
			dst = appendInt(w.field(dst, "kv_cache_spec_sliding_window"), int64(g.Window))
		}
		if e.session != "" {
			dst = appendText(w.field(dst, "session_id"), e.session)
		}
	}
	return dst
}

// appendHead starts an event of so many fields (at most 14) besides its type.
func (w wire) appendHead(dst []byte, name string, fields int) []byte {
	if w.maps {
		return appendText(appendText(append(dst, 0x80|byte(fields+1)), "type"), name)
	}
	return appendText(appendArray(dst, fields+1), name)
}

// field appends a field's name if events are maps.
func (w wire) field(dst []byte, name string) []byte {
	if w.maps {
		return appendText(dst, name)
	}
	return dst
}

func (w wire) appendHashes(dst []byte, hashes []digest) []byte {
	dst = appendArray(dst, len(hashes))
	for i := range hashes {
		dst = w.appendHash(dst, &hashes[i])
	}
	return dst
}

func (w wire) appendHash(dst []byte, d *digest) []byte {
	if w.hashBytes {
		return append(append(dst, 0xc4, d.n), d.bytes()...)
	}
	return appendUint(dst, d.low())
}

// appendExtra writes extra keys as events carry them in every release: untagged,
// a LoRA by its name alone, an image as (id, offset).
func appendExtra(dst []byte, blocks [][]extraKey) []byte {
	dst = appendArray(dst, len(blocks))
	for _, keys := range blocks {
		if len(keys) == 0 {
			dst = append(dst, msgpackNil)
			continue
		}
		dst = appendArray(dst, len(keys))
		for _, k := range keys {
			if k.tag == "mm" {
				dst = appendInt(appendText(appendArray(dst, 2), k.text), int64(k.offset))
			} else {
				dst = appendText(dst, k.text)
			}
		}
	}
	return dst
}

const msgpackNil = 0xc0

func appendArray(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

func appendText(dst []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n < 1<<8:
		dst = append(dst, 0xd9, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(dst, byte(v))
	case v < 1<<8:
		return append(dst, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	case v >= -1<<7:
		return append(dst, 0xd0, byte(v))
	case v >= -1<<15:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(v))
	case v >= -1<<31:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}

// wireOf returns the wire form of the events of a rank of a replica with options o.
func wireOf(o Options, rank int) wire {
	return wire{maps: o.Version == V032, hashBytes: o.HashBytes, rank: rank, groups: o.Groups}
}
