package reporter

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "warmroute/index/indexpb"
)

// tap is a client that records the reports, in order, and fails on demand.
type tap struct {
	pb.CacheIndexClient
	mu   sync.Mutex
	told []string
	ats  []int64 // timestamps of the messages that carry blocks
	down bool
}

func (c *tap) at(ms int64) {
	c.mu.Lock()
	c.ats = append(c.ats, ms)
	c.mu.Unlock()
}

func (c *tap) note(format string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return status.Error(codes.Unavailable, "the index is away")
	}
	c.told = append(c.told, fmt.Sprintf(format, args...))
	return nil
}

func (c *tap) set(down bool) {
	c.mu.Lock()
	c.down = down
	c.mu.Unlock()
}

func (c *tap) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.told, " ")
	c.told = nil
	return out
}

func (c *tap) PublishEvent(ctx context.Context, q *pb.PublishEventRequest, o ...grpc.CallOption) (*pb.PublishEventResponse, error) {
	what := map[pb.EventType]string{pb.EventType_ALL_CLEARED: "clear", pb.EventType_REPLICA_UPDATED: "ping"}[q.GetType()]
	if err := c.note("%s", what); err != nil {
		return nil, err
	}
	return c.CacheIndexClient.PublishEvent(ctx, q, o...)
}

func (c *tap) StreamEvents(ctx context.Context, o ...grpc.CallOption) (grpc.ClientStreamingClient[pb.PublishEventRequest, pb.PublishEventResponse], error) {
	if err := c.note("events"); err != nil {
		return nil, err
	}
	s, err := c.CacheIndexClient.StreamEvents(ctx, o...)
	return &tapEvents{s, c}, err
}

type tapEvents struct {
	grpc.ClientStreamingClient[pb.PublishEventRequest, pb.PublishEventResponse]
	c *tap
}

func (s *tapEvents) Send(q *pb.PublishEventRequest) error {
	if q.GetType() != pb.EventType_PREFIX_EVICTED {
		return s.c.note("%v", q.GetType())
	}
	s.c.at(q.GetTimestampMs())
	if err := s.c.note("-%d", number(q.GetBlockHash())); err != nil {
		return err
	}
	return s.ClientStreamingClient.Send(q)
}

// number reads a hash of 8 bytes.
func number(hash []byte) uint64 { return binary.BigEndian.Uint64(hash) }

func (c *tap) StreamCacheState(ctx context.Context, o ...grpc.CallOption) (grpc.ClientStreamingClient[pb.ReportCacheStateRequest, pb.ReportCacheStateResponse], error) {
	if err := c.note("stream"); err != nil {
		return nil, err
	}
	s, err := c.CacheIndexClient.StreamCacheState(ctx, o...)
	return &tapStream{s, c}, err
}

type tapStream struct {
	grpc.ClientStreamingClient[pb.ReportCacheStateRequest, pb.ReportCacheStateResponse]
	c *tap
}

func (s *tapStream) Send(q *pb.ReportCacheStateRequest) error {
	s.c.at(q.GetTimestampMs())
	for _, p := range q.GetPrefixes() {
		var keys []string
		for i, h := range p.GetBlockHashes() {
			keys = append(keys, fmt.Sprintf("%d@%d", number(h), p.GetTokenCounts()[i]))
		}
		if err := s.c.note("+%s", strings.Join(keys, ",")); err != nil {
			return err
		}
	}
	return s.ClientStreamingClient.Send(q)
}
