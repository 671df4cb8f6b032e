package kvevents

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"warmroute/index"
	"warmroute/prefixhash"
)

// Decoder decodes payloads into buffers that it reuses. It is not safe for concurrent use.
type Decoder struct {
	SkipTokens bool    // skip token ids and extra keys: for users of vLLM's hashes only
	Adapter    Adapter // of the publisher's engine; nil is vLLM's

	batch  Batch
	hashes []uint64
	tokens []uint32
	keys   []prefixhash.ExtraKey
	rows   [][]prefixhash.ExtraKey
	names  interned // adapters, media: the same few in every batch
	ids    interned // salts, image identifiers: dropped with the batch
}

const (
	// maxEvents bounds the events of a batch: a step publishes one for each request
	// and each evicted block. An event takes twenty times the memory of its shortest
	// form on the wire.
	maxEvents = 1 << 16
	// maxBlockSize bounds the tokens of a block. Models with Mamba states have a few
	// thousand.
	maxBlockSize = 1 << 20
	// maxGroups bounds the cache groups of a model: vLLM makes at most one for each layer.
	maxGroups = 1 << 10
	// retainedPayload is the largest payload whose buffers are kept for the next one.
	retainedPayload = 1 << 20
)

// Decode decodes one payload of either generation. Any malformed part rejects the complete
// payload: the error wraps one of the package's Err values and names the place. Decode skips
// unknown tags and unknown trailing fields. The batch is valid until the next call and while
// payload is unchanged.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	if d.names == nil {
		d.names, d.ids = make(interned), make(interned)
	}
	if d.Adapter == nil {
		d.Adapter = VLLM()
	}
	if len(d.names) >= internLimit {
		clear(d.names)
	}
	clear(d.ids)
	d.hashes, d.tokens, d.keys, d.rows = d.hashes[:0], d.tokens[:0], d.keys[:0], d.rows[:0]
	b := &d.batch
	*b = Batch{Rank: -1, Events: b.Events[:0], Strange: b.Strange[:0], Payload: payload}

	c := cursor{b: payload}
	fields := c.array()
	if c.err == nil && fields < 2 {
		return nil, fmt.Errorf("batch of %d fields, want at least 2: %w", fields, ErrTruncated)
	}
	if !c.null() {
		b.Time = c.seconds()
	}
	if math.IsNaN(b.Time) || math.IsInf(b.Time, 0) {
		b.Time = 0
	}
	events := c.array()
	if c.err == nil && events > maxEvents {
		c.fail(ErrEvents)
	}
	if c.err != nil {
		return nil, fmt.Errorf("batch: %w", c.err)
	}
	for i := range events {
		if where := d.event(&c); c.err != nil {
			return nil, fmt.Errorf("event %d of %d%s: %w", i+1, events, where, c.err)
		}
	}
	rest := fields - 2
	if rest > 0 {
		if !c.null() {
			b.Rank = c.int31()
		}
		rest--
	}
	c.skip(rest)
	if c.err != nil {
		return nil, fmt.Errorf("batch, after its events: %w", c.err)
	}
	if c.i != len(payload) {
		return nil, ErrTrailing
	}
	return b, nil
}

func typeOf(tag []byte) (event index.EventType, required uint16) {
	switch string(tag) {
	case "BlockStored":
		return index.Stored, storedRequired
	case "BlockRemoved":
		return index.Removed, removedRequired
	case "AllBlocksCleared":
		return index.Cleared, 0
	}
	return 0, 0
}

// event decodes one event and appends it to the batch. where names, for an error, the
// field and the tag.
func (d *Decoder) event(c *cursor) (where string) {
	start := c.i
	keyed := isMap(c.peek())
	var n int
	if keyed {
		n = c.dict()
	} else {
		n = c.array()
	}
	tag := d.tag(c, keyed, n)
	if c.err != nil {
		return ", its tag"
	}
	event, required := typeOf(tag)
	if event == 0 {
		c.i = start
		c.skip(1)
		d.batch.Unknown++
		d.batch.strange("events ", tag)
		return ""
	}
	d.batch.Events = append(d.batch.Events, Event{Kind: event})
	e := &d.batch.Events[len(d.batch.Events)-1]
	var seen uint16
	if keyed {
		seen, where = d.named(c, e, n)
	} else {
		seen, where = d.positional(c, e, n-1)
	}
	if c.err != nil {
		return " (" + string(tag) + where + ")"
	}
	if lacking := required &^ seen; lacking != 0 {
		err := ErrMissing
		if !keyed {
			err = ErrTruncated
		}
		c.fail(err)
		return " (" + string(tag) + ", " + firstField(lacking) + ")"
	}
	if !d.sane(e) {
		c.fail(ErrBlockSize)
		return " (" + string(tag) + ")"
	}
	return ""
}

// tag returns the event's tag. An array has it first; a map usually, too: the cursor is
// then behind it, otherwise at the map's first pair.
func (d *Decoder) tag(c *cursor, keyed bool, n int) []byte {
	if !keyed {
		if c.err == nil && n == 0 {
			c.fail(ErrTruncated)
		}
		return c.bytes()
	}
	first := c.i
	for range n {
		if !isStr(c.peek()) {
			c.skip(2)
			continue
		}
		if string(c.bytes()) == "type" {
			tag := c.bytes()
			if c.err == nil {
				c.i = first
			}
			return tag
		}
		c.skip(1)
	}
	c.fail(ErrMissing)
	return nil
}

func (d *Decoder) named(c *cursor, e *Event, pairs int) (seen uint16, where string) {
	for ; pairs > 0 && c.err == nil; pairs-- {
		if !isStr(c.peek()) {
			c.skip(2)
			continue
		}
		name := c.bytes()
		f := fieldOf(name)
		if f == other && c.err == nil && c.peek() != tagNil && !harmless(name) {
			d.batch.strange("field ", name)
		}
		d.value(c, e, f)
		if c.err != nil {
			return seen, ", " + fieldNames[f]
		}
		seen |= 1 << f
	}
	return seen, ""
}

func (d *Decoder) positional(c *cursor, e *Event, n int) (seen uint16, where string) {
	order := d.Adapter.fields(e.Kind)
	for i := 0; i < n && c.err == nil; i++ {
		f := other
		if i < len(order) {
			f = order[i]
		} else if c.peek() != tagNil {
			d.batch.strange("field ", strconv.AppendInt(nil, int64(i+1), 10))
		}
		d.value(c, e, f)
		if c.err != nil {
			return seen, ", " + fieldNames[f]
		}
		seen |= 1 << f
	}
	return seen, ""
}

// value decodes one field's value into e.
func (d *Decoder) value(c *cursor, e *Event, f field) {
	start := c.i
	switch f {
	case blockHashes:
		from := len(d.hashes)
		d.hashes = c.hashes(d.hashes)
		e.Hashes = slices.Clip(d.hashes[from:])
		e.hashes = c.b[start:c.i]
	case parentHash:
		if c.null() {
			return
		}
		e.Parent, e.HasParent = c.hash(), true
		e.parent = c.b[start:c.i]
	case tokenIDs:
		d.tokenIDs(c, e)
	case blockSize:
		e.BlockSize = c.int31()
	case loraID:
		e.HasID = !c.null()
		switch {
		case !e.HasID:
		case isInt(c.peek()):
			e.ID, _ = c.integer()
		default:
			c.skip(1)
		}
	case lookahead:
		d.lookahead(c, e)
	case cacheSalt:
		if !c.null() {
			e.Salt = d.ids.of(c.bytes())
		}
	case medium:
		e.Medium = d.optional(c)
	case loraName:
		if c.null() {
			return
		}
		e.LoRA = prefixhash.LoRA{Name: d.names.of(c.bytes()), Set: true}
	case extraKeys:
		d.extraKeys(c, e)
	case groupIdx:
		if c.null() {
			return
		}
		switch e.Group = c.int31(); {
		case e.Group < 0:
			c.fail(ErrType)
		case e.Group >= maxGroups:
			c.fail(ErrGroup)
		}
	case specKind:
		e.Spec = d.text(c)
	case specWindow:
		if isInt(c.peek()) {
			e.Window = max(0, c.int31())
			return
		}
		c.skip(1)
	case locality:
		where := d.text(c)
		e.Local, e.Remote = where == "LOCAL", where == "REMOTE"
	default:
		c.skip(1)
	}
}

func (d *Decoder) tokenIDs(c *cursor, e *Event) {
	if d.SkipTokens {
		start := *c
		e.TokenCount = start.array()
		c.skip(1)
		return
	}
	if c.nested() {
		d.tokenPairs(c, e)
		return
	}
	from := len(d.tokens)
	var ok bool
	d.tokens, ok = c.tokens(d.tokens)
	e.Tokens = slices.Clip(d.tokens[from:])
	e.TokenCount = len(e.Tokens)
	e.Unkeyed = e.Unkeyed || !ok
}

// tokenPairs reads tokens that are listed with the token behind each, as SGLang does when
// it drafts with EAGLE.
func (d *Decoder) tokenPairs(c *cursor, e *Event) {
	from, n := len(d.tokens), c.array()
	if n == 0 { // what follows is the next field's array
		return
	}
	d.tokens = slices.Grow(d.tokens, n+1)
	for i := range n {
		at := len(d.tokens)
		var ok bool
		if d.tokens, ok = c.tokens(d.tokens); c.err != nil {
			return
		}
		if len(d.tokens) != at+2 {
			c.fail(ErrType)
			return
		}
		chained := i == 0 || d.tokens[at] == d.tokens[at-1]
		e.Unkeyed = e.Unkeyed || !ok || !chained
		if i > 0 { // the pair before has its first token already
			d.tokens[at] = d.tokens[at+1]
			d.tokens = d.tokens[:at+1]
		}
	}
	last := len(d.tokens) - 1
	e.Tokens, e.Behind, e.Ahead = slices.Clip(d.tokens[from:last]), slices.Clip(d.tokens[last:]), 1
	e.TokenCount = n
}

// lookahead reads the tokens behind each block, the same number for all.
func (d *Decoder) lookahead(c *cursor, e *Event) {
	if c.null() {
		return
	}
	for i, n := 0, c.array(); i < n && c.err == nil; i++ {
		from, row := len(d.tokens), *c
		ahead := row.array()
		if d.SkipTokens {
			c.skip(1)
		} else {
			var ok bool
			d.tokens, ok = c.tokens(d.tokens)
			e.Behind = slices.Clip(d.tokens[from:])
			e.Unkeyed = e.Unkeyed || !ok
		}
		e.Unkeyed = e.Unkeyed || (i > 0 || e.Ahead > 0) && ahead != e.Ahead
		e.Ahead = ahead
	}
}

// extraKeys reads the per-block extra keys: nil, or a list with nil or a list of
// keys for each block.
func (d *Decoder) extraKeys(c *cursor, e *Event) {
	if c.null() {
		return
	}
	e.Told = true
	if d.SkipTokens {
		c.skip(1)
		return
	}
	n := c.array()
	from := len(d.rows)
	d.rows = slices.Grow(d.rows, n)
	for ; n > 0 && c.err == nil; n-- {
		if c.null() {
			d.rows = append(d.rows, nil)
			continue
		}
		row := len(d.keys)
		for k := c.array(); k > 0 && c.err == nil; k-- {
			key, ok := d.extraKey(c)
			d.keys = append(d.keys, key)
			e.Unkeyed = e.Unkeyed || !ok
		}
		d.rows = append(d.rows, slices.Clip(d.keys[row:]))
	}
	e.Extras = slices.Clip(d.rows[from:])
}

// extraKey reads one key: text or bytes alone, or [identifier, offset]. It skips any other
// shape and returns false.
func (d *Decoder) extraKey(c *cursor) (key prefixhash.ExtraKey, ok bool) {
	switch t := c.peek(); {
	case isStr(t) || isBin(t):
		return prefixhash.ExtraKey{ID: d.id(c.bytes())}, true
	case isArray(t):
		start := *c
		if start.array() == 2 && isStr(start.peek()) {
			key.ID = d.id(start.bytes())
			if isInt(start.peek()) {
				offset, negative := start.integer()
				if start.err == nil && (negative || offset <= math.MaxInt64) {
					*c = start
					key.Offset, key.HasOffset = int64(offset), true
					return key, true
				}
			}
		}
	}
	c.skip(1)
	return prefixhash.ExtraKey{}, false
}

// sane reports whether the event's block size is possible: positive, or 0 in a
// placeholder of a lower tier.
func (d *Decoder) sane(e *Event) bool {
	return e.Kind != index.Stored || e.BlockSize > 0 && e.BlockSize <= maxBlockSize ||
		e.BlockSize == 0 && e.TokenCount == 0 && d.Adapter.tier(e.Medium) != index.TierGPU
}

func (d *Decoder) optional(c *cursor) string {
	if c.null() {
		return ""
	}
	return d.names.of(c.bytes())
}

// text reads a text, "" for a value that is none.
func (d *Decoder) text(c *cursor) string {
	if !isStr(c.peek()) {
		c.skip(1)
		return ""
	}
	return d.names.of(c.bytes())
}

// id returns an extra key's text: the adapter's name in every block of an adapter,
// otherwise a text that must not outlive the batch.
func (d *Decoder) id(b []byte) string {
	if v, ok := d.names[string(b)]; ok {
		return v
	}
	return d.ids.of(b)
}
