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

func (s *liveServer) stored(t *testing.T, i int) Stored {
	t.Helper()
	e := s.Events[i]
	out := Stored{Tokens: e.Tokens, BlockSize: e.BlockSize, Extras: (&vector{EventKeys: e.Extras}).extras()}
	if e.Parent != nil {
		out.Parent = published(t, *e.Parent)
	}
	for _, h := range e.Hashes {
		out.Hashes = append(out.Hashes, published(t, h))
	}
	if e.LoRA != nil {
		out.LoRA = LoRA{Name: *e.LoRA, Set: true}
	}
	return out
}

// TestDetectorOnLiveTraffic: real servers' events, integers and bytes, with salts
// and with an adapter whose path is not known, are distinguished among 24
// configurations, and no block disagrees.
func TestDetectorOnLiveTraffic(t *testing.T) {
	for _, s := range liveServers(t) {
		t.Run(s.Server, func(t *testing.T) {
			d := detector(t, DetectorOptions{}, "7", "42")
			blocks, adapters := uint64(0), uint64(0)
			for i := range s.Events {
				e := s.stored(t, i)
				d.Observe(e)
				blocks += uint64(len(e.Hashes))
				if e.LoRA.Set {
					adapters += uint64(len(e.Hashes))
				}
			}
			got := d.Detection()
			if got.State != Match || got.Mismatched != 0 || got.Matched+got.Unverified != blocks {
				t.Fatalf("%+v of %d blocks, want a match on all", got, blocks)
			}
			if got.Unverified != adapters {
				t.Errorf("%d blocks not judged, want the %d of an adapter", got.Unverified, adapters)
			}
			for _, c := range got.Candidates {
				seeded := s.Seed != nil
				if c.Algorithm().String() != s.Algo || c.Seeded() != seeded || seeded && c.root != withSeed(t, c, *s.Seed).root {
					t.Errorf("named %v, want %s", c, s.Algo)
				}
			}
			if len(got.Candidates) != 1 || got.Candidates[0].Generation().String() != s.Generation {
				t.Errorf("named %v, want one, %s", got.Candidates, s.Generation)
			}
		})
	}
}

func withSeed(t *testing.T, c *VLLM, seed string) *VLLM {
	t.Helper()
	v, err := NewVLLM(VLLMOptions{c.Algorithm(), c.Generation(), &seed})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
