package prefixhash

import (
	"encoding/hex"
	"testing"

	"warmroute/render/testkit/golden"
)

// liveServer is one real server's output: its BlockStored events in order.
type liveServer struct {
	Server     string
	Algo       string
	Generation string
	Seed       *string
	Events     []struct {
		Parent    *string
		Hashes    []string
		Tokens    []uint32
		BlockSize int `json:"block_size"`
		LoRA      *string
		Extras    [][]any
	}
}

func liveServers(t *testing.T) []liveServer {
	t.Helper()
	var servers []liveServer
	golden.Read(t, "testdata/live/stored.json.gz", &servers)
	if len(servers) != 4 {
		t.Fatalf("%d servers, want 4", len(servers))
	}
	return servers
}

func published(t *testing.T, s string) Digest {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDigest(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// reproduces reports whether v computes every hash of the server whose inputs its events have,
// with the number of such blocks. Hashes published as integers are parents once they were
// computed.
func (s *liveServer) reproduces(t *testing.T, v *VLLM) (all bool, blocks int) {
	t.Helper()
	digests := map[Key]Digest{}
	for i := range s.Events {
		e := &s.Events[i]
		parent, known := v.Root()
		if e.Parent != nil {
			if parent = published(t, *e.Parent); !parent.Full() {
				parent, known = digests[parent.Key()]
			} else {
				known = true
			}
		}
		if !known || e.LoRA != nil { // the path of an adapter is in no event
			continue
		}
		got := v.AppendEventDigests(nil, parent, e.Tokens, e.BlockSize, EventKeys{Extras: (&vector{EventKeys: e.Extras}).extras()})
		if len(got) != len(e.Hashes) {
			t.Fatalf("%d digests of %d blocks", len(got), len(e.Hashes))
		}
		for j, d := range got {
			want := published(t, e.Hashes[j])
			if d != want && (want.Full() || d.Key() != want.Key()) {
				return false, blocks
			}
			digests[d.Key()] = d
			blocks++
		}
	}
	return true, blocks
}

// TestLiveTraffic: of 24 configurations one alone reproduces a real server's events, integers and
// bytes, with salts: the server's own. No block of a prompt without an adapter is left out.
func TestLiveTraffic(t *testing.T) {
	candidates, err := Candidates("7", "42")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range liveServers(t) {
		t.Run(s.Server, func(t *testing.T) {
			want := 0
			for i := range s.Events {
				if s.Events[i].LoRA == nil {
					want += len(s.Events[i].Hashes)
				}
			}
			own := false
			for _, v := range candidates {
				all, blocks := s.reproduces(t, v)
				is := v.Algorithm().String() == s.Algo && v.Generation().String() == s.Generation && v.Seeded() == (s.Seed != nil)
				if is && s.Seed != nil {
					seeded, err := NewVLLM(VLLMOptions{v.Algorithm(), v.Generation(), s.Seed})
					if err != nil {
						t.Fatal(err)
					}
					is = v.root == seeded.root
				}
				switch {
				case !all || blocks < want: // without its root, first blocks cannot be computed
				case is:
					own = true
				default:
					t.Errorf("%v reproduces all %d blocks", v, blocks)
				}
			}
			if !own {
				t.Errorf("the server's own configuration does not reproduce its %d blocks", want)
			}
		})
	}
}
