package kvevents

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

func generations() map[string]kvtest.Encoding {
	return map[string]kvtest.Encoding{
		"arrays": {Generation: kvtest.Arrays}, "arrays, bytes": {Generation: kvtest.Arrays, Bytes: true},
		"maps": {Generation: kvtest.Maps}, "maps, bytes": {Generation: kvtest.Maps, Bytes: true},
	}
}

func ptr[T any](v T) *T { return &v }

func TestDecodeBothGenerations(t *testing.T) {
	for name, enc := range generations() {
		t.Run(name, func(t *testing.T) {
			payload := enc.Batch(12.5, 3,
				kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{7}, Medium: "CPU", Group: ptr(2), Trailing: []string{"locality", "later"}},
				kvtest.Event{Kind: kvtest.Cleared},
				kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1 << 63, math.MaxUint64, 5}, Parent: ptr(uint64(9)),
					Tokens: []uint32{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, 1, 2, 3, 4}, BlockSize: 4, LoRA: "sql",
					Extras:   [][]any{{"sql", "salt"}, {"sql", []any{"image", -3}}, {"sql"}},
					Group:    ptr(1),
					Trailing: []string{"something_new"}},
			)
			b := must.Get(new(Decoder).Decode(payload))(t)
			if b.Time != 12.5 || b.Rank != 3 || b.Unknown != 0 || len(b.Events) != 3 {
				t.Fatalf("batch %+v", b)
			}
			r, c, s := &b.Events[0], &b.Events[1], &b.Events[2]
			if r.Kind != index.Removed || !slices.Equal(r.Hashes, []uint64{7}) || r.Medium != "CPU" || r.Group != 2 {
				t.Errorf("removed: %+v", r)
			}
			if c.Kind != index.Cleared {
				t.Errorf("cleared: %+v", c)
			}
			if s.Kind != index.Stored || !slices.Equal(s.Hashes, []uint64{1 << 63, math.MaxUint64, 5}) || !s.HasParent || s.Parent != 9 ||
				s.BlockSize != 4 || s.LoRA != (prefixhash.LoRA{Name: "sql", Set: true}) || s.Group != 1 || s.Medium != "GPU" || s.Unkeyed {
				t.Errorf("stored: %+v", s)
			}
			if !slices.Equal(s.Tokens, []uint32{0, 127, 128, 255, 256, 65535, 65536, math.MaxUint32, 1, 2, 3, 4}) {
				t.Errorf("tokens %v", s.Tokens)
			}
			want := [][]prefixhash.ExtraKey{{{ID: "sql"}, {ID: "salt"}}, {{ID: "sql"}, {ID: "image", Offset: -3, HasOffset: true}}, {{ID: "sql"}}}
			if !slices.EqualFunc(s.Extras, want, slices.Equal) {
				t.Errorf("extra keys %v", s.Extras)
			}
			if d := s.Digests(); (d != nil) != enc.Bytes || enc.Bytes && (len(d) != 3 || len(d[0]) != 32) {
				t.Errorf("digests %x", d)
			}
			if d := s.ParentDigest(); (d != nil) != enc.Bytes {
				t.Errorf("parent digest %x", d)
			}
		})
	}
}

// stored and friends write payloads that the encoders of kvtest refuse to
// write.
func stored(fields ...any) []any {
	base := []any{"BlockStored", []any{1}, nil, []any{1, 2}, 2, nil, "GPU", nil, nil, 0}
	return append(slices.Clone(fields), base[min(len(fields), len(base)):]...)
}

func pack(events ...any) []byte { return kvtest.Pack([]any{1.5, append([]any{}, events...), 0}) }

func named(change map[string]any, drop ...string) kvtest.Fields {
	f := kvtest.Fields{{Name: "type", Value: "BlockStored"}, {Name: "block_hashes", Value: []any{1}}, {Name: "parent_block_hash"},
		{Name: "token_ids", Value: []any{1, 2}}, {Name: "block_size", Value: 2}, {Name: "lora_id"}, {Name: "medium", Value: "GPU"}, {Name: "lora_name"}}
	f = slices.DeleteFunc(f, func(p kvtest.Field) bool { return slices.Contains(drop, p.Name) })
	for i := range f {
		if v, ok := change[f[i].Name]; ok {
			f[i].Value = v
		}
	}
	return f
}

// TestLookahead: blocks whose hashes cover different numbers of tokens behind them have no key.
func TestLookahead(t *testing.T) {
	for _, tt := range []struct {
		ahead   []any
		unkeyed bool
	}{
		{[]any{[]any{9}, []any{7}}, false}, {[]any{[]any{}, []any{}}, false},
		{[]any{[]any{9}, []any{7, 8}}, true}, {[]any{[]any{9}, []any{}}, true}, {[]any{[]any{}, []any{9}}, true},
	} {
		payload := pack(append(named(map[string]any{"block_hashes": []any{1, 2}, "token_ids": []any{1, 2, 3, 4}}), kvtest.Field{Name: "lookahead_token_ids", Value: tt.ahead}))
		if b := must.Get(new(Decoder).Decode(payload))(t); b.Events[0].Unkeyed != tt.unkeyed {
			t.Errorf("%v: %+v", tt.ahead, b.Events[0])
		}
	}
}

func TestDecodeMalformed(t *testing.T) {
	cases := map[string]struct {
		payload []byte
		want    error
		place   string
	}{
		"empty":                       {nil, ErrTruncated, "batch"},
		"not an array":                {kvtest.Pack("BlockStored"), ErrType, "batch"},
		"a batch of one field":        {kvtest.Pack([]any{1.5}), ErrTruncated, "at least 2"},
		"a time of text":              {kvtest.Pack([]any{"now", []any{}}), ErrType, "batch"},
		"events of nil":               {kvtest.Pack([]any{1.5, nil}), ErrType, "batch"},
		"an event of nil":             {pack(nil), ErrType, "event 1 of 1"},
		"an event without a tag":      {pack([]any{}), ErrTruncated, "event 1 of 1"},
		"a map without a type":        {pack(kvtest.Fields{{Name: "x", Value: 1}}), ErrMissing, "tag"},
		"a tag that is a number":      {pack([]any{5}), ErrType, "tag"},
		"bytes after the batch":       {append(pack(), 0), ErrTrailing, ""},
		"a rank of text":              {kvtest.Pack([]any{1.5, []any{}, "x"}), ErrType, "after its events"},
		"nil hash":                    {pack(stored("BlockStored", []any{1, nil})), ErrNilHash, "block_hashes"},
		"nil hash, map":               {pack(named(map[string]any{"block_hashes": []any{nil}})), ErrNilHash, "block_hashes"},
		"nil hash removed":            {pack([]any{"BlockRemoved", []any{nil}, "GPU"}), ErrNilHash, "BlockRemoved"},
		"nil hashes":                  {pack(stored("BlockStored", nil)), ErrType, "block_hashes"},
		"a hash of text":              {pack(stored("BlockStored", []any{"abc"})), ErrType, "block_hashes"},
		"a hash of floating point":    {pack(stored("BlockStored", []any{1.5})), ErrType, "block_hashes"},
		"a hash of no bytes":          {pack(stored("BlockStored", []any{[]byte{}})), ErrType, "block_hashes"},
		"a parent of text":            {pack(stored("BlockStored", []any{1}, "x")), ErrType, "parent_block_hash"},
		"token ids of text":           {pack(stored("BlockStored", []any{1}, nil, []any{"x"})), ErrType, "token_ids"},
		"token ids nil":               {pack(stored("BlockStored", []any{1}, nil, nil)), ErrType, "token_ids"},
		"block_size 0":                {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, 0)), ErrBlockSize, "BlockStored"},
		"block_size 0, no tokens":     {pack(stored("BlockStored", []any{1}, nil, []any{}, 0)), ErrBlockSize, "BlockStored"},
		"block_size 0, on CPU":        {pack(stored("BlockStored", []any{1}, nil, []any{1}, 0, nil, "CPU")), ErrBlockSize, "BlockStored"},
		"block_size -1":               {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, -1)), ErrBlockSize, "BlockStored"},
		"block_size -1, map":          {pack(named(map[string]any{"block_size": -1})), ErrBlockSize, "BlockStored"},
		"block_size beyond 31 bits":   {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, int64(1)<<40)), ErrBlockSize, "BlockStored"},
		"block_size above the most":   {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, maxBlockSize+1)), ErrBlockSize, "BlockStored"},
		"the same, map":               {pack(named(map[string]any{"block_size": maxBlockSize + 1})), ErrBlockSize, "BlockStored"},
		"block_size nil":              {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, nil)), ErrType, "block_size"},
		"a tuple of a tag only":       {pack([]any{"BlockStored"}), ErrTruncated, "block_hashes"},
		"a tuple without tokens":      {pack([]any{"BlockStored", []any{1}, nil}), ErrTruncated, "token_ids"},
		"a tuple without block_size":  {pack([]any{"BlockStored", []any{1}, nil, []any{1, 2}}), ErrTruncated, "block_size"},
		"a removal of a tag only":     {pack([]any{"BlockRemoved"}), ErrTruncated, "block_hashes"},
		"a map without hashes":        {pack(named(nil, "block_hashes")), ErrMissing, "block_hashes"},
		"a map without a parent":      {pack(named(nil, "parent_block_hash")), ErrMissing, "parent_block_hash"},
		"a map without tokens":        {pack(named(nil, "token_ids")), ErrMissing, "token_ids"},
		"a map without block_size":    {pack(named(nil, "block_size")), ErrMissing, "block_size"},
		"lora_name a number":          {pack(named(map[string]any{"lora_name": 3})), ErrType, "lora_name"},
		"group_idx negative":          {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, 2, nil, "GPU", nil, nil, -1)), ErrType, "group_idx"},
		"extra keys a number":         {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, 2, nil, "GPU", nil, 5)), ErrType, "extra_keys"},
		"extra keys of a block, text": {pack(stored("BlockStored", []any{1}, nil, []any{1, 2}, 2, nil, "GPU", nil, []any{"salt"})), ErrType, "extra_keys"},
		"too many events":             {pack(slices.Repeat([]any{[]any{"AllBlocksCleared"}}, maxEvents+1)...), ErrEvents, ""},
		"an array of 2^32-1 hashes":   {append(slices.Clone(pack(stored())[:22]), 0xdd, 0xff, 0xff, 0xff, 0xff), ErrTruncated, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := new(Decoder).Decode(c.payload)
			if !errors.Is(err, c.want) {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			if !strings.Contains(err.Error(), c.place) {
				t.Errorf("error %q does not name %q", err, c.place)
			}
		})
	}
}

// TestDecodeTruncated: a payload cut anywhere is rejected, never misread.
func TestDecodeTruncated(t *testing.T) {
	for name, c := range captures(t) {
		payload := c.Frames[0].Payload
		for n := range payload {
			if _, err := new(Decoder).Decode(payload[:n]); err == nil {
				t.Fatalf("%s: cut at %d of %d and accepted", name, n, len(payload))
			}
		}
	}
}

func TestDecodeTolerates(t *testing.T) {
	deep := any(1)
	for range 10_000 {
		deep = []any{deep}
	}
	payload := pack(
		[]any{"BlockMoved", []any{1}, map[string]any{"x": []any{nil, true, 1.5, float32(2), []byte("b"), -70000}}},
		kvtest.Fields{{Name: "extra", Value: 1}, {Name: "type", Value: "BlockTouched"}},
		[]any{"", deep},
		kvtest.Fields{{Name: "block_hashes", Value: []any{-1}}, {Name: "type", Value: "BlockRemoved"}, {Name: "new", Value: deep}},
		[]any{"AllBlocksCleared", "later"},
		[]any{"BlockStored", []any{5}, nil, []any{1, 2}, 2}, // as old as it gets
		stored("BlockStored", []any{5}, nil, []any{1, -7}, 2),
		stored("BlockStored", []any{5}, nil, []any{1, 2}, 2, nil, "GPU", nil, []any{[]any{1.5}}),
		stored("BlockStored", []any{5}, nil, []any{}, 0, nil, "CPU"),
	)
	b, err := new(Decoder).Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	if b.Unknown != 3 || len(b.Events) != 6 {
		t.Fatalf("%d unknown, %d events; want 3 and 6", b.Unknown, len(b.Events))
	}
	e := b.Events
	if e[0].Kind != index.Removed || e[0].Hashes[0] != math.MaxUint64 {
		t.Errorf("a type behind its fields, a signed hash: %+v", e[0])
	}
	if e[1].Kind != index.Cleared || e[2].Medium != "" || e[2].Unkeyed {
		t.Errorf("%+v %+v", e[1], e[2])
	}
	if !e[3].Unkeyed || !e[4].Unkeyed {
		t.Error("a negative token id or an extra key of an unknown shape must cost the event its keys")
	}
	if !e[5].Placeholder() {
		t.Errorf("%+v is no placeholder", e[5])
	}
	if b, err = new(Decoder).Decode(kvtest.Pack([]any{math.NaN(), []any{}, nil, "later", 7})); err != nil || b.Time != 0 || b.Rank != -1 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestErrorsHideContents: the values of a batch never show in an error.
func TestErrorsHideContents(t *testing.T) {
	_, err := new(Decoder).Decode(pack(stored("BlockStored", []any{424242}, nil, []any{515151, "secret-prompt"}, 2)))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, s := range []string{"424242", "515151", "secret"} {
		if strings.Contains(err.Error(), s) {
			t.Errorf("error %q holds %q", err, s)
		}
	}
}

func TestConvert(t *testing.T) {
	var d Decoder
	c := converter{tenant: "t", model: "m", scheme: index.SchemeTokens, adapter: VLLM()}
	b := must.Get(d.Decode(pack(
		[]any{"BlockRemoved", []any{1}, "GPU", 0},
		[]any{"BlockRemoved", []any{2, 3}, "GPU", 0},
		[]any{"BlockRemoved", []any{4}, "cpu", 0},
		[]any{"BlockRemoved", []any{5}, "cpu", 1},
		[]any{"AllBlocksCleared"},
		stored("BlockStored", []any{6, 7}, 5, []any{1, 2, 3, 4}, 2, nil, nil, nil, nil, 1),
		stored("BlockStored", []any{8, 9}, 7, []any{1, 2}, 2),                                             // masked: fewer tokens
		stored("BlockStored", []any{8}, 7, []any{1, 2, 3}, 2),                                             // partial
		stored("BlockStored", []any{}, 7, []any{1, 2}, 2),                                                 // all of it null
		stored("BlockStored", []any{8}, 7, []any{1, 2}, 2, 1, "GPU", nil),                                 // an adapter without a name
		stored("BlockStored", []any{8}, 7, []any{1, 2}, 2, 1, "STORAGE", "sql"),                           // and with one, undescribed
		stored("BlockStored", []any{8}, 7, []any{1, 2}, 2, 1, "FS", "sql", []any{[]any{"sql"}}),           // and described
		stored("BlockStored", []any{8}, 7, []any{1, 2}, 2, nil, "GPU", nil, []any{nil, nil}),              // extra keys for two
		stored("BlockStored", []any{8}, nil, []any{}, 0, nil, "STORAGE"),                                  // placeholder
		stored("BlockStored", []any{9}, nil, []any{}, 0, nil, "CPU", nil, nil, 3),                         // and of a chunk
		stored("BlockStored", []any{8}, nil, []any{1, 2}, 2, nil, "GPU", nil, nil, 0, "sliding_window"),   // kind known
		stored("BlockStored", []any{8}, nil, []any{1, 2}, 2, nil, "GPU", nil, nil, nil, "full_attention"), // kind known
	)))(t)
	out, n := c.convert(b)
	if n != (Contents{BlocksStored: 13, BlocksRemoved: 5, Clears: 1, Unkeyed: 4, Placeholders: 2}) {
		t.Errorf("counted %+v", n)
	}
	e := out.Events
	if len(e) != 16 {
		t.Fatalf("%d events, want 16: %+v", len(e), e)
	}
	if !slices.Equal(e[0].Hashes, []uint64{1, 2, 3}) || e[0].Tier != index.TierGPU ||
		!slices.Equal(e[1].Hashes, []uint64{4}) || e[1].Tier != index.TierCPU || e[2].Scope.Group != 1 || e[3].Kind != index.Cleared {
		t.Errorf("removals: %+v", e[:4])
	}
	s := e[4]
	if s.Scope != (index.Scope{Tenant: "t", Model: "m", Scheme: "tokens", BlockSize: 2, Group: 1}) || !s.HasParent || s.Parent != 5 ||
		!slices.Equal(s.Content, prefixhash.AppendContents(nil, []uint32{1, 2, 3, 4}, prefixhash.Blocks{Size: 2}, nil)) {
		t.Errorf("stored: %+v", s)
	}
	if none := e[7]; len(none.Hashes) != 0 || none.Tokens != 2 { // it only shows that there is such a group
		t.Errorf("nothing stored: %+v", none)
	}
	e = slices.Delete(e, 7, 8)
	if c := e[11]; !c.ByHash || c.Connector != index.NoConnector || c.Tier != index.TierStorage {
		t.Errorf("chunk in storage: %+v", c)
	}
	if c := e[12]; !c.ByHash || c.Connector != index.OffloadChunks || c.Tier != index.TierCPU || c.Scope.Group != 3 || c.Scope.BlockSize != 0 || c.Content != nil {
		t.Errorf("chunk: %+v", c)
	}
	e = slices.Delete(e, 11, 13)
	for i, want := range []int{2, 1, 1} {
		if u := e[5+i]; u.Content != nil || u.Scope.Scheme != SchemeEngine || len(u.Hashes) != want {
			t.Errorf("unkeyed %d: %+v", i, u)
		}
	}
	bare, told := e[8], e[9]
	if len(bare.Content) != 1 || !slices.Equal(bare.Content, told.Content) || bare.Tier != index.TierStorage || told.Tier != index.TierStorage {
		t.Errorf("an adapter's blocks differ by whether its key is described: %+v %+v", bare, told)
	}
	if !e[11].OtherKind() || !e[12].FullAttention() || s.OtherKind() || s.FullAttention() {
		t.Error("kinds of groups")
	}
}

func TestDecodeAllocations(t *testing.T) {
	for name, c := range captures(t) {
		var d Decoder
		conv := converter{model: captureModel, scheme: index.SchemeTokens, adapter: VLLM()}
		run := func() {
			for _, f := range c.Frames {
				b, err := d.Decode(f.Payload)
				if err != nil {
					t.Fatal(err)
				}
				conv.convert(b)
			}
		}
		run()
		// Salts are allocated again in each batch that has one, on purpose.
		if n := testing.AllocsPerRun(20, run); n > 4 {
			t.Errorf("%s: %.0f allocations over %d warm batches", name, n, len(c.Frames))
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range captures(f) {
		for _, fr := range c.Frames[:min(4, len(c.Frames))] {
			f.Add(fr.Payload)
		}
	}
	for _, enc := range generations() {
		f.Add(enc.Batch(1, 0, kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1, 2}, Tokens: []uint32{1, 2, 3, 4}, BlockSize: 2,
			LoRA: "l", Extras: [][]any{{"l", []any{"m", 1}}, {"l"}}}, kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{1}}, kvtest.Event{Kind: kvtest.Cleared}))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		var d Decoder
		conv := converter{scheme: index.SchemeTokens, adapter: VLLM()}
		b, err := d.Decode(payload)
		if err != nil {
			return
		}
		for i := range b.Events {
			e := &b.Events[i]
			if e.Kind == index.Stored && e.BlockSize <= 0 && !e.Placeholder() {
				t.Fatalf("block size %d accepted", e.BlockSize)
			}
			if dg := e.Digests(); dg != nil && len(dg) != len(e.Hashes) {
				t.Fatal("digests and hashes differ in number")
			}
		}
		out, _ := conv.convert(b)
		for _, e := range out.Events {
			if e.Content != nil && len(e.Content) != len(e.Hashes) {
				t.Fatal("contents and hashes differ in number")
			}
		}
		again, err := new(Decoder).Decode(payload)
		if err != nil || len(again.Events) != len(b.Events) {
			t.Fatal("a second reading differs")
		}
	})
}
