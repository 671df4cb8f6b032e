package prefixhash

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

func someTokens(n int) []uint32 {
	r := rand.New(rand.NewPCG(1, 2))
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = r.Uint32N(151936)
	}
	return tokens
}

// TestChainsAreAContract pins the chains' values: indexes of different versions
// and machines exchange them.
func TestChainsAreAContract(t *testing.T) {
	lora := LoRA{Name: "sql", Set: true}
	tokens := make([]uint32, 80)
	for i := range tokens {
		tokens[i] = uint32(i * i * 977)
	}
	extras := [][]ExtraKey{{{ID: "sql"}, {ID: "image", Offset: 3, HasOffset: true}, {ID: "salt"}}, nil, {{ID: "image", Offset: -13, HasOffset: true}}}
	text := make([]byte, 600)
	for i := range text {
		text[i] = byte(i * 7)
	}
	for _, c := range []struct {
		name string
		got  []Key
		want string
	}{
		{"root", []Key{TokenRoot("m", LoRA{}), TokenRoot("m", lora), TokenRoot("m", LoRA{Set: true}), textRoot("m")}, wantRoots},
		{"tokens", AppendTokens(nil, TokenRoot("m", LoRA{}), tokens, Blocks{Size: 16}, nil), wantTokens},
		{"extras", AppendTokens(nil, TokenRoot("m", lora), tokens, Blocks{Size: 16}, extras), wantExtras},
		{"pieces", AppendTokens(nil, TokenRoot("m", LoRA{}), tokens, Blocks{Size: 40}, nil), wantPieces},
		{"text", AppendText(nil, "m", text), wantText},
	} {
		if got := fmt.Sprintf("%x", c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

const (
	wantRoots  = "[e615b58b83e878c7 e0b1cb6bf2966f10 3e390b65f9c0ee9c 2c6a2044d809a19a]"
	wantTokens = "[793293246a27351a d01d8ce439e6bf21 96e2d9dbf77f09e5 85e6d427eba5d2f7 61df1f871498af5a]"
	wantExtras = "[5f914c2de1858ce2 5ac748353adb39e8 e8fbbbb90bd5c7a5 fd406064c349c104 39a4c1dbc4a716ed]"
	wantPieces = "[94112263a40ff85b 8b64e201e33e6e5d]"
	wantText   = "[5a43dc9dcc490253 9141361f954a877e]"
)

func TestTokenChainHalvesAgree(t *testing.T) {
	tokens := someTokens(1000)
	salt := "s"
	r := Request{LoRA: LoRA{Name: "l", Set: true}, CacheSalt: &salt, MM: []MM{{"a", 5, 40}, {"b", 50, 3}}}
	for _, size := range []int{1, 2, 16, 31, 32, 33, 64, 100, 999, 1000, 1001} {
		extras := r.AppendExtras(nil, len(tokens)/size, size, 0)
		fused := AppendTokens(nil, 7, tokens, Blocks{Size: size}, extras)
		halves := AppendLinks(nil, 7, AppendContents(nil, tokens, Blocks{Size: size}, extras))
		if !slices.Equal(fused, halves) || len(fused) != len(tokens)/size {
			t.Errorf("block size %d: %d keys in one pass, %d in two, want %d equal ones", size, len(fused), len(halves), len(tokens)/size)
		}
	}
}

// TestEverythingCounts changes one thing at a time and wants another key.
func TestEverythingCounts(t *testing.T) {
	tokens := someTokens(48)
	last := func(root Key, tokens []uint32, extras ...[]ExtraKey) Key {
		keys := AppendTokens(nil, root, tokens, Blocks{Size: 48}, extras)
		return keys[len(keys)-1]
	}
	root := TokenRoot("m", LoRA{})
	seen := map[Key]string{last(root, tokens): "plain"}
	add := func(name string, k Key) {
		t.Helper()
		if other, ok := seen[k]; ok {
			t.Errorf("%s has the key of %s", name, other)
		}
		seen[k] = name
	}
	for i := range tokens {
		changed := slices.Clone(tokens)
		changed[i]++
		add(fmt.Sprintf("token %d changed", i), last(root, changed))
	}
	swapped := slices.Clone(tokens)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	add("two tokens swapped", last(root, swapped))
	add("another model", last(TokenRoot("n", LoRA{}), tokens))
	add("an adapter", last(TokenRoot("m", LoRA{Name: "l", Set: true}), tokens))
	add("the adapter from a path", last(TokenRoot("m", LoRA{Name: "l", Path: "/1", Set: true}), tokens))
	add("the adapter from another path", last(TokenRoot("m", LoRA{Name: "l", Path: "/2", Set: true}), tokens))
	add("an adapter without a name", last(TokenRoot("m", LoRA{Name: "", Set: true}), tokens))
	item := func(id string, offset int64) ExtraKey { return ExtraKey{ID: id, Offset: offset, HasOffset: true} }
	for name, extras := range map[string][]ExtraKey{
		"a salt":          {{ID: "a"}},
		"an empty key":    {{ID: ""}},
		"an image":        {item("a", 0)},
		"its offset":      {item("a", 1)},
		"before its end":  {item("a", -1)},
		"another image":   {item("b", 0)},
		"both":            {item("a", 0), item("b", 1)},
		"both, swapped":   {item("b", 1), item("a", 0)},
		"salt and image":  {{ID: "a"}, item("a", 0)},
		"image and salt":  {item("a", 0), {ID: "a"}},
		"joined":          {{ID: "ab"}},
		"apart":           {{ID: "a"}, {ID: "b"}},
		"apart elsewhere": {{ID: ""}, {ID: "ab"}},
	} {
		add(name, last(root, tokens, extras))
	}
}

// TestEqualPlaceholders is why extra keys are folded in: two images stand on the
// same placeholder tokens.
func TestEqualPlaceholders(t *testing.T) {
	tokens := make([]uint32, 64)
	root := TokenRoot("m", LoRA{})
	keys := func(id string) []Key {
		r := Request{MM: []MM{{id, 20, 10}}}
		return AppendTokens(nil, root, tokens, Blocks{Size: 16}, r.AppendExtras(nil, 4, 16, 0))
	}
	a, b := keys("a"), keys("b")
	if a[0] != b[0] {
		t.Error("the block before the image differs")
	}
	for i := 1; i < 4; i++ {
		if a[i] == b[i] {
			t.Errorf("block %d is shared by two images", i)
		}
	}
}

func TestLinkNeverZero(t *testing.T) {
	// mix(parent, c) is 0 exactly if the sum inside it is.
	factor := uint64(0x9e3779b97f4a7c15)
	parent := uint64(12345)
	if k := Link(Key(parent), Content(-(parent * factor))); k != 1 {
		t.Errorf("got %d, want 1 in place of 0", k)
	}
}

func TestPiecesCopiedOrNot(t *testing.T) {
	tokens := someTokens(pieceTokens)
	for n := range tokens {
		for _, seed := range []uint64{0, 1, 1 << 63} {
			if a, b := hashPiece(tokens[:n], seed), hashPieceCopied(tokens[:n], seed); a != b {
				t.Errorf("%d tokens, seed %d: %x in place, %x copied", n, seed, a, b)
			}
		}
	}
}

// TestSixteen: the way of blocks of 16 tokens gives the library's hash, for any tokens and
// seed.
func TestSixteen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		var block [usualBlock]uint32
		for i := range block {
			block[i] = r.Uint32()
		}
		seed := r.Uint64() & -r.Uint64N(2) // 0 every other time, as without extra keys
		if a, b := hashSixteen(block[:], seed), hashPieceCopied(block[:], seed); a != b {
			t.Fatalf("%v, seed %d: %x, the library says %x", block, seed, a, b)
		}
	}
}

func TestExtrasReuse(t *testing.T) {
	salt := "s"
	with := Request{LoRA: LoRA{Name: "l", Set: true}, CacheSalt: &salt, MM: []MM{{"a", 5, 40}, {"b", 50, 3}}}
	other := Request{CacheSalt: &salt}
	want := with.AppendExtras(nil, 8, 16, 0)
	pooled := with.AppendExtras(nil, 8, 16, 0)
	pooled = other.AppendExtras(pooled[:0], 8, 16, 0)
	if len(pooled) != 1 || !slices.Equal(pooled[0], []ExtraKey{{ID: "s"}}) {
		t.Errorf("salt alone: %v", pooled)
	}
	pooled = with.AppendExtras(pooled[:0], 8, 16, 0)
	if !slices.EqualFunc(pooled, want, slices.Equal) {
		t.Errorf("reused: %v, want %v", pooled, want)
	}
	if got := (Request{}).AppendExtras(nil, 8, 16, 0); got != nil {
		t.Errorf("nothing mixed in: %v", got)
	}
}

func TestItemsInAnyOrder(t *testing.T) {
	sorted := Request{MM: []MM{{"a", 1, 4}, {"b", 20, 30}, {"c", 60, 4}}}
	mixed := Request{MM: []MM{sorted.MM[2], sorted.MM[0], sorted.MM[1]}}
	a, b := sorted.AppendExtras(nil, 5, 16, 0), mixed.AppendExtras(nil, 5, 16, 0)
	if !slices.EqualFunc(a, b, slices.Equal) {
		t.Errorf("%v, want %v", b, a)
	}
	if mixed.MM[0].ID != "c" {
		t.Error("the caller's items were sorted in place")
	}
}

func TestAppendText(t *testing.T) {
	const windows = 200
	text := make([]byte, TextToken*TextMarks.End(windows)+9)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	all := AppendText(nil, "m", text)
	if len(all) != windows {
		t.Fatalf("%d keys, want %d", len(all), windows)
	}
	for n := range windows {
		end := TextToken * TextMarks.End(n+1)
		if got := AppendText(nil, "m", text[:end]); !slices.Equal(got, all[:n+1]) {
			t.Fatalf("%d bytes: %d keys, want the first %d", end, len(got), n+1)
		}
		if got := AppendText(nil, "m", text[:end-1]); !slices.Equal(got, all[:n]) {
			t.Fatalf("%d bytes: %d keys, want the first %d", end-1, len(got), n)
		}
	}
	other := AppendText(nil, "n", text)
	for i := range all {
		if slices.Contains(other, all[i]) {
			t.Errorf("key %d is shared by two models", i)
		}
	}
	text[0]++
	if changed := AppendText(nil, "m", text); changed[windows-1] == all[windows-1] {
		t.Error("the last key does not depend on the first byte")
	}
	if n := len(AppendText(nil, "m", make([]byte, MaxText+1<<20))); n != TextMarks.Len() {
		t.Errorf("%d keys of a text without end, want %d", n, TextMarks.Len())
	}
}

// TestNoAllocations: a request's and an event's allocations.
func TestNoAllocations(t *testing.T) {
	tokens := someTokens(4096)
	salt := "tenant"
	r := Request{LoRA: LoRA{Name: "l", Set: true}, LoRAPath: "/l", CacheSalt: &salt, MM: []MM{{"a", 5, 400}, {"b", 500, 3}}}
	extras := r.AppendExtras(nil, 256, 16, 0)
	keys, contents, digests := make([]Key, 0, 256), make([]Content, 0, 256), make([]Digest, 0, 256)
	text := make([]byte, 1<<15)
	none := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s: %v allocations per run, want 0", name, n)
		}
	}
	for _, size := range []int{16, 64, 256} {
		none("AppendTokens", func() { keys = AppendTokens(keys[:0], 1, tokens, Blocks{Size: size}, extras) })
		none("AppendContents", func() { contents = AppendContents(contents[:0], tokens, Blocks{Size: size}, extras) })
		for a := SHA256; a <= XXHashCBOR && !race.Enabled; a++ {
			v, _ := NewVLLM(VLLMOptions{Algorithm: a, Generation: Tagged, Seed: &salt})
			root, _ := v.Root()
			none(v.String(), func() { digests = v.AppendDigests(digests[:0], Position{Parent: root}, tokens, size, r) })
		}
	}
	none("AppendExtras", func() { extras = r.AppendExtras(extras[:0], 256, 16, 0) })
	none("AppendExtras of nothing", func() { Request{}.AppendExtras(nil, 256, 16, 0) })
	none("AppendLinks", func() { keys = AppendLinks(keys[:0], 1, contents[:16]) })
	none("AppendText", func() { keys = AppendText(keys[:0], "model", text) })
	none("TokenRoot", func() { TokenRoot("model", r.LoRA) })
}

func FuzzTokenChainResumes(f *testing.F) {
	f.Add([]byte("some tokens, four bytes each, ....................."), uint16(3), uint16(2), uint64(9))
	f.Fuzz(func(t *testing.T, raw []byte, size, cut uint16, parent uint64) {
		tokens := make([]uint32, len(raw))
		for i, b := range raw {
			tokens[i] = uint32(b) * 0x01020305
		}
		blockSize := int(size)%64 + 1
		salt := "s"
		r := Request{CacheSalt: &salt, MM: []MM{{"a", int(cut), int(size)}}}
		blocks := len(tokens) / blockSize
		extras := r.AppendExtras(nil, blocks, blockSize, 0)
		whole := AppendTokens(nil, Key(parent), tokens, Blocks{Size: blockSize}, extras)
		at := 0
		if blocks > 0 {
			at = int(cut) % (blocks + 1)
		}
		two := AppendTokens(nil, Key(parent), tokens[:at*blockSize], Blocks{Size: blockSize}, extras)
		next := Key(parent)
		if at > 0 {
			next = two[at-1]
		}
		two = AppendTokens(two, next, tokens[at*blockSize:], Blocks{Size: blockSize}, extras[min(at, len(extras)):])
		if !slices.Equal(two, whole) {
			t.Fatalf("block size %d, cut behind block %d: %x, want %x", blockSize, at, two, whole)
		}
	})
}

func FuzzTextChainResumes(f *testing.F) {
	f.Add(make([]byte, 3*TextToken*TextUnit+5), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, cut uint8) {
		whole := AppendText(nil, "m", text)
		at := int(cut) % (len(whole) + 1)
		two := appendWindows(nil, textRoot("m"), text[:TextToken*TextMarks.End(at)], 0)
		next := textRoot("m")
		if at > 0 {
			next = two[at-1]
		}
		two = appendWindows(two, next, text, at)
		if !slices.Equal(two, whole) {
			t.Fatalf("cut behind window %d: %x, want %x", at, two, whole)
		}
	})
}

func FuzzVLLMResumes(f *testing.F) {
	f.Add([]byte("some tokens"), uint8(0), uint8(2), uint8(1), "salt", "id")
	f.Fuzz(func(t *testing.T, raw []byte, kind, size, cut uint8, salt, id string) {
		tokens := make([]uint32, len(raw))
		for i, b := range raw {
			tokens[i] = uint32(b) * 0x01020305
		}
		v := must.Get(NewVLLM(VLLMOptions{Algorithm: SHA256 + Algorithm(kind%4), Generation: Untagged + Generation(kind/4%2), Seed: &salt}))(t)
		blockSize := int(size)%32 + 1
		r := Request{LoRA: LoRA{Name: id, Set: kind&8 != 0}, LoRAPath: salt, CacheSalt: &salt, MM: []MM{{id, int(cut), int(size)}}}
		root, _ := v.Root()
		whole := v.AppendDigests(nil, Position{Parent: root}, tokens, blockSize, r)
		blocks := len(tokens) / blockSize
		at := int(cut) % (blocks + 1)
		two := v.AppendDigests(nil, Position{Parent: root}, tokens[:at*blockSize], blockSize, r)
		if at > 0 {
			root = two[at-1]
		}
		two = v.AppendDigests(two, Position{Parent: root, Block: at}, tokens[at*blockSize:], blockSize, r)
		if !slices.Equal(two, whole) {
			t.Fatalf("cut behind block %d: %v, want %v", at, two, whole)
		}
	})
}
