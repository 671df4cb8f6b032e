package indexrpc

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"warmroute/index"
	pb "warmroute/index/indexpb"
)

func TestRankingAndTopK(t *testing.T) {
	b := serve(t)
	for i, n := range []int{2, 5, 3, 4} {
		b.report(from(fmt.Sprintf("r%d", i), "engine", 100, n))
	}
	b.want(ask("engine", 100, 6), "r1:640 r3:512 r2:384")
	q := ask("engine", 100, 6)
	q.TopK = 10
	b.want(q, "r1:640 r3:512 r2:384 r0:256")
	q.TopK = 1
	b.want(q, "r1:640")
	// Half as fresh and twice as long is as good; a little fresher is better.
	b.advance(index.DefaultReplicaTTL / 2)
	b.report(from("r2", "engine", 100, 3))
	q.TopK = 2
	b.want(q, "r2:384 r1:640")
}

func TestIsolation(t *testing.T) {
	b := serve(t)
	own := from("own", "engine", 100, 2)
	own.Tenant = "a"
	other := from("other", "engine", 100, 3)
	other.Tenant = "b"
	lora := from("adapter", "engine", 100, 4)
	lora.Prefixes[0].Lora = &pb.Lora{}
	for _, q := range []*pb.ReportCacheStateRequest{own, other, lora, from("shared", "engine", 100, 1), from("tokens", "tokens", 100, 5)} {
		b.report(q)
	}
	q := ask("engine", 100, 9)
	b.want(q, "shared:128")
	q.Tenant = "a"
	b.want(q, "own:256 shared:128")
	q.Lora = &pb.Lora{}
	b.want(q, "adapter:512")
	q.Lora = &pb.Lora{Name: "x"}
	b.want(q, "NO_MATCH")
	b.want(ask("sha256", 100, 9), "SCHEME_MISMATCH")
}

func TestReasons(t *testing.T) {
	b := serve(t)
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
	b.report(from("r", "engine", 100, 1))
	b.want(ask("", 100, 1), "EMPTY_SCHEME")
	b.want(ask("engine", 100, 0), "EMPTY_PREFIX")
	b.want(ask("engine", 999, 1), "NO_MATCH")
	b.want(&pb.LookupRouteRequest{Model: "m", HashScheme: "engine", BlockSize: 128, BlockHashes: [][]byte{{}}}, "EMPTY_HASH")
	b.want(ask("tokens", 100, 1), "SCHEME_MISMATCH")
}

func TestOpaque(t *testing.T) {
	b := serve(t)
	q := from("r", "text", 100, 2)
	q.Prefixes[0].BlockSize, q.Prefixes[0].TokenCounts = 0, []uint64{70, 900}
	b.report(q)
	short := from("s", "text", 100, 1)
	short.Prefixes[0].BlockSize, short.Prefixes[0].TokenCounts = 0, []uint64{70}
	b.report(short)
	look := ask("text", 100, 2)
	look.BlockSize = 0
	b.want(look, "r:900 s:70")
	short.Prefixes[0].TokenCounts = nil
	if out := b.report(short); out.GetDropped() != 1 {
		t.Errorf("%v: an opaque hash without its count is worth nothing", out)
	}
}

// TestLongHashesCountInFull: long hashes that are no digests of vLLM's match only as a whole, and
// digests as the integers that vLLM publishes for them.
func TestLongHashesCountInFull(t *testing.T) {
	long := func(head byte, tail uint64) []byte { return append([]byte{head, 0, 0, 0}, hash(tail)...) } // 12 bytes
	b := serve(t)
	q := from("r", "other", 0, 0)
	q.Prefixes[0].BlockHashes, q.Prefixes[0].TokenCounts = [][]byte{long(1, 7), long(1, 8)}, []uint64{128, 256}
	b.report(q)
	look := ask("other", 0, 0)
	look.BlockHashes = [][]byte{long(1, 7), long(1, 8)}
	b.want(look, "r:256")
	look.BlockHashes = [][]byte{long(1, 7), long(2, 8)}
	b.want(look, "r:128")
	look.BlockHashes = [][]byte{long(2, 7), hash(8)}
	b.want(look, "NO_MATCH")
	for _, step := range []struct {
		head    byte
		removed uint64
	}{{2, 0}, {1, 1}} {
		if out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "other", BlockHash: long(step.head, 8)}); out.GetRemoved() != step.removed {
			t.Errorf("%v, want %d removed", out, step.removed)
		}
	}
	s := New(nil, Options{})
	digest := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 4)
	for _, hash := range [][]byte{digest, digest[:16], digest[:8]} {
		if k, ok := s.key(hash); !ok || k != 0x0102030405060708 {
			t.Errorf("%d bytes: %x, %v", len(hash), k, ok)
		}
	}
	if k, ok := s.key([]byte{7}); !ok || k != 7 {
		t.Errorf("one byte: %x, %v", k, ok)
	}
	if _, ok := s.key(nil); ok {
		t.Error("an empty hash has a key")
	}
}

// TestLookupChangesNothing: neither the blocks, nor their freshness, nor their
// deadlines.
func TestLookupChangesNothing(t *testing.T) {
	b := serve(t)
	b.report(from("r", "engine", 100, 2))
	leased := from("r", "engine", 500, 1)
	leased.TtlMs = 120_000
	b.report(leased)
	before := b.state()
	b.advance(time.Minute)
	unknown := ask("engine", 100, 3)
	unknown.Tenant, unknown.Model = "made up", "made up"
	for range 3 {
		b.want(ask("engine", 100, 3), "r:256")
		b.want(ask("engine", 500, 1), "r:128")
		b.want(ask("engine", 900, 1), "NO_MATCH")
		b.want(ask("other", 100, 1), "SCHEME_MISMATCH")
		b.want(unknown, "UNKNOWN_MODEL")
	}
	if after := b.state(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	b.advance(time.Minute + time.Second)
	b.want(ask("engine", 500, 1), "NO_MATCH") // the lookups did not extend it
	b.advance(index.DefaultReplicaTTL)
	b.want(ask("engine", 100, 1), "UNKNOWN_MODEL")
}

// TestCandidates: only the replicas that the caller can use answer, and each
// with its share of the prompt.
func TestCandidates(t *testing.T) {
	b := serve(t)
	for i, n := range []int{4, 2, 1} {
		b.report(from(fmt.Sprintf("r%d", i), "engine", 100, n))
	}
	q := ask("engine", 100, 8)
	q.Candidates = []string{"r1", "r2", "elsewhere"}
	b.want(q, "r1:256 r2:128")
	out, err := b.c.LookupRoute(b.ctx(), q)
	if err != nil || out.GetTotalTokens() != 1024 || out.GetRoutes()[0].GetShare() != 0.25 || out.GetRoutes()[1].GetShare() != 0.125 {
		t.Errorf("%v %v, want shares 0.25 and 0.125 of 1024", out, err)
	}
	q.Candidates = []string{"elsewhere"}
	b.want(q, "NO_CANDIDATE")

	opaque := from("o", "text", 100, 1)
	opaque.Prefixes[0].BlockSize, opaque.Prefixes[0].TokenCounts = 0, []uint64{300}
	b.report(opaque)
	q = &pb.LookupRouteRequest{Model: "m", HashScheme: "text", BlockHashes: chain(100, 1)}
	if out, err = b.c.LookupRoute(b.ctx(), q); err != nil || out.GetTotalTokens() != 0 || out.GetRoutes()[0].GetShare() != 0 {
		t.Errorf("%v %v: the length of an opaque prompt is not known", out, err)
	}
	q.PromptTokens = 400
	if out, err = b.c.LookupRoute(b.ctx(), q); err != nil || out.GetTotalTokens() != 400 || out.GetRoutes()[0].GetShare() != 0.75 {
		t.Errorf("%v %v, want a share of 0.75", out, err)
	}
}

// TestOnePrefixOfOneReplica goes in one event; its other prefixes and the other
// replicas' stay.
func TestOnePrefixOfOneReplica(t *testing.T) {
	b := serve(t)
	for _, r := range []string{"r", "s"} {
		b.report(from(r, "engine", 100, 3))
		b.report(from(r, "engine", 500, 2))
	}
	out := b.publish(&pb.PublishEventRequest{Type: pb.EventType_PREFIX_EVICTED, ReplicaId: "r", Model: "m", HashScheme: "engine",
		BlockHash: hash(100), BlockHashes: [][]byte{hash(101), hash(102), hash(999)}})
	if out.GetRemoved() != 3 {
		t.Errorf("%v, want three removed", out)
	}
	b.want(ask("engine", 100, 3), "s:384")
	b.want(ask("engine", 500, 2), "r:256 s:256")
}
