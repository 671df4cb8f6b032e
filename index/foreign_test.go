package index

import (
	"bytes"
	"testing"

	"warmroute/prefixhash"
)

func TestForeignHashes(t *testing.T) {
	var f Foreign
	digest := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4)
	const low = prefixhash.Key(0x0102030405060708)
	for _, hash := range [][]byte{digest, digest[:16], digest[:8]} {
		if k, ok := f.Key(hash); !ok || k != low {
			t.Errorf("%d bytes: key %x, %v, want %x", len(hash), k, ok, low)
		}
	}
	if k, ok := f.Key([]byte{7}); !ok || k != 7 {
		t.Errorf("one byte: %x, %v, want 7", k, ok)
	}
	if _, ok := f.Key(nil); ok {
		t.Error("an empty hash has a key")
	}
	if _, ok := f.Find(nil); ok {
		t.Error("an empty hash is found")
	}
	var empty Foreign
	for _, hash := range [][]byte{digest, digest[:16], digest[:8]} { // these need no report
		if k, ok := empty.Find(hash); !ok || k != low {
			t.Errorf("%d bytes: found %x, %v, want %x", len(hash), k, ok, low)
		}
	}

	long := append([]byte("first---"), digest[:12]...)
	clash := append([]byte("second--"), digest[:12]...)
	if _, ok := f.Find(long); ok {
		t.Error("a long hash is found before it was reported")
	}
	k, ok := f.Key(long)
	if again, same := f.Key(long); !ok || !same || again != k {
		t.Errorf("a long hash: %x, %v, then %x, %v", k, ok, again, same)
	}
	if _, ok := f.Key(clash); ok {
		t.Error("a long hash with the last bytes of another has a key")
	}
	if _, ok := f.Find(clash); ok {
		t.Error("a long hash with the last bytes of another is found")
	}
	if found, ok := f.Find(long); !ok || found != k {
		t.Errorf("found %x, %v, want %x", found, ok, k)
	}
}

func TestForeignRemembersABoundedNumber(t *testing.T) {
	var f Foreign
	hash := make([]byte, 20)
	for i := range maxForeign + 10 {
		hash[19], hash[18], hash[17], hash[16] = byte(i), byte(i>>8), byte(i>>16), 1
		if _, ok := f.Key(hash); !ok {
			t.Fatalf("hash %d has no key", i)
		}
	}
	if len(f.full) != maxForeign || len(f.order) != maxForeign {
		t.Errorf("%d hashes remembered, want %d", len(f.full), maxForeign)
	}
	hash[19], hash[18], hash[17] = 3, 0, 0
	if _, ok := f.Find(hash); ok {
		t.Error("the oldest is still known")
	}
}
