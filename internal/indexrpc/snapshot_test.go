package indexrpc

import (
	"context"
	"errors"
	"maps"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"warmroute/index"
	pb "warmroute/index/indexpb"
	"warmroute/render/testkit/must"
)

// parts is a client that gives a snapshot of these parts.
type parts struct {
	pb.CacheIndexClient
	grpc.ServerStreamingClient[pb.Snapshot]
	rest []*pb.Snapshot
	end  error
}

func (p *parts) StreamSnapshot(context.Context, *pb.SnapshotRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[pb.Snapshot], error) {
	return p, nil
}

func (p *parts) Recv() (*pb.Snapshot, error) {
	if len(p.rest) == 0 {
		return nil, p.end
	}
	next := p.rest[0]
	p.rest = p.rest[1:]
	return next, nil
}

func begun() *pb.Snapshot {
	return &pb.Snapshot{Chain: chainCheck(),
		Holders: []*pb.SnapshotHolder{{ReplicaId: "r", Next: 3, Incarnation: 1}, {ReplicaId: "s", Next: 9, Incarnation: 2}}}
}

func middle(entries ...*pb.SnapshotEntry) *pb.Snapshot {
	return &pb.Snapshot{Scopes: []*pb.SnapshotScope{{Model: "m", HashScheme: "tokens", BlockSize: 16}}, Entries: entries}
}

func ending(holders ...*pb.SnapshotHolder) *pb.Snapshot {
	return &pb.Snapshot{Last: true, Holders: holders}
}

// TestSnapshotsAreTakenWholeOrNotAtAll: a snapshot that is malformed, cut off or
// of another version restores nothing.
func TestSnapshotsAreTakenWholeOrNotAtAll(t *testing.T) {
	good := &pb.SnapshotEntry{Key: 7, Hash: 70}
	other := begun()
	other.Chain++
	for name, p := range map[string]*parts{
		"cut off":               {rest: []*pb.Snapshot{begun(), middle(good)}, end: errors.New("gone")},
		"another version":       {rest: []*pb.Snapshot{other, ending()}},
		"a place of nothing":    {rest: []*pb.Snapshot{{Chain: chainCheck(), Holders: []*pb.SnapshotHolder{{ReplicaId: "r"}}}, ending()}},
		"a scope out of range":  {rest: []*pb.Snapshot{begun(), middle(good, &pb.SnapshotEntry{Scope: 1}), ending()}},
		"a holder out of range": {rest: []*pb.Snapshot{begun(), middle(good, &pb.SnapshotEntry{Holder: 2}), ending()}},
		"a tier out of range":   {rest: []*pb.Snapshot{begun(), middle(good, &pb.SnapshotEntry{Tier: 3}), ending()}},
		"too many copies":       {rest: []*pb.Snapshot{begun(), middle(good, &pb.SnapshotEntry{Extra: 1 << 31}), ending()}},
	} {
		x := index.New(index.Options{})
		cursors, _, err := Fetch(t.Context(), p, x)
		if err == nil || len(cursors) > 0 || len(maps.Collect(x.Holders())) > 0 {
			t.Errorf("%s: error %v, %d places, %d holders", name, err, len(cursors), len(maps.Collect(x.Holders())))
		}
		x.Close()
	}
}

// TestSnapshotLeavesOutWhatCannotBeUsed: holders that were forgotten meanwhile.
func TestSnapshotLeavesOutWhatCannotBeUsed(t *testing.T) {
	p := &parts{rest: []*pb.Snapshot{begun(),
		middle(&pb.SnapshotEntry{Key: 7, Hash: 70}, &pb.SnapshotEntry{Key: 7, Hash: 70, Holder: 1}),
		ending(&pb.SnapshotHolder{ReplicaId: "r", Next: 5, Incarnation: 1}, &pb.SnapshotHolder{ReplicaId: "s", Next: 9, Incarnation: 4})}}
	x := index.New(index.Options{})
	defer x.Close()
	cursors, res, err := Fetch(t.Context(), p, x)
	if err != nil || len(cursors) != 1 || cursors[0].Holder.Replica != "r" || cursors[0].Next != 3 || cursors[0].Begun != 5 || cursors[0].Incarnation != 0 {
		t.Fatalf("%+v, %v: want r's place, from 3, with what was begun before 5 repeated", cursors, err)
	}
	if res.Stored != 1 || x.Holdings(index.Holder{Replica: "r"}) != 1 || x.Holdings(index.Holder{Replica: "s"}) != 0 {
		t.Errorf("%+v: want r's block 7 alone", res)
	}
}

func FuzzSnapshot(f *testing.F) {
	for _, p := range []*pb.Snapshot{begun(), middle(&pb.SnapshotEntry{Key: 7, Hash: 70}, &pb.SnapshotEntry{Key: 7, Hash: 71, Parent: 7, Holder: 1}), ending()} {
		b := must.Get(proto.Marshal(p))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := new(pb.Snapshot)
		if proto.Unmarshal(b, p) != nil {
			return
		}
		x := index.New(index.Options{})
		defer x.Close()
		_, _, _ = Fetch(t.Context(), &parts{rest: []*pb.Snapshot{begun(), p, ending(begun().Holders...)}, end: errors.New("over")}, x)
	})
}
