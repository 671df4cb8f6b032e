package xds

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/anypb"
)

// nackPause is how long the stream of an Envoy that refused a state of the world is
// held: without it the server would send the same state again at once.
const nackPause = time.Second

// acks records for each connected Envoy the updates that it was sent, took and refused.
type acks struct {
	log     *slog.Logger
	metrics *metrics
	acked   atomic.Pointer[acked] // nil: no Envoy has taken endpoints

	mu     sync.Mutex
	envoys map[int64]*conversation
	left   bool // some Envoy has been connected and is not any more
}

// maxUnanswered bounds the responses that are kept for an Envoy's answers: one is under
// way for each type. If a client answers none, the oldest is dropped.
const maxUnanswered = 64

// conversation is one Envoy's stream.
type conversation struct {
	who       string
	sent      map[string]sent   // by nonce, not answered yet
	refused   map[string]string // by type, Envoy's words on the update that it refused last
	endpoints map[string][]string
}

// sent is a response that waits for its acknowledgement.
type sent struct {
	typeURL   string
	endpoints map[string][]string // by cluster
	removed   []string            // clusters
	complete  bool                // endpoints has all endpoints
}

func newAcks(m *metrics, log *slog.Logger) *acks {
	return &acks{log: log, metrics: m, envoys: map[int64]*conversation{}}
}

// incremental separates the ids of the two kinds of stream, which count apart.
const incremental = 1 << 62

// callbacks connects a with go-control-plane's server. That an Envoy has endpoints from before, or keeps
// its former state after a refusal, is withheld from the server, which therefore sends these again: the
// Envoy's answers on this stream alone tell what it has.
func (a *acks) callbacks() serverv3.Callbacks {
	return serverv3.CallbackFuncs{
		StreamOpenFunc:        func(ctx context.Context, id int64, _ string) error { a.open(ctx, id); return nil },
		StreamClosedFunc:      func(id int64, _ *corev3.Node) { a.close(id) },
		DeltaStreamOpenFunc:   func(ctx context.Context, id int64, _ string) error { a.open(ctx, id|incremental); return nil },
		DeltaStreamClosedFunc: func(id int64, _ *corev3.Node) { a.close(id | incremental) },
		StreamRequestFunc: func(id int64, r *discoveryv3.DiscoveryRequest) error {
			refused := a.answered(id, r.GetNode(), r.GetResponseNonce(), r.GetErrorDetail() != nil, r.GetErrorDetail().GetMessage())
			if refused || r.GetTypeUrl() == resourcev3.EndpointType && r.GetResponseNonce() == "" {
				r.VersionInfo = ""
			}
			if refused {
				time.Sleep(nackPause)
			}
			return nil
		},
		StreamResponseFunc: func(_ context.Context, id int64, _ *discoveryv3.DiscoveryRequest, r *discoveryv3.DiscoveryResponse) {
			a.send(id, r.GetNonce(), sent{typeURL: r.GetTypeUrl(), endpoints: assignments(r.GetTypeUrl(), r.GetResources()), complete: true})
		},
		StreamDeltaRequestFunc: func(id int64, r *discoveryv3.DeltaDiscoveryRequest) error {
			id |= incremental
			if r.GetTypeUrl() == resourcev3.EndpointType {
				r.InitialResourceVersions = nil
			}
			a.answered(id, r.GetNode(), r.GetResponseNonce(), r.GetErrorDetail() != nil, r.GetErrorDetail().GetMessage())
			return nil
		},
		StreamDeltaResponseFunc: func(id int64, _ *discoveryv3.DeltaDiscoveryRequest, r *discoveryv3.DeltaDiscoveryResponse) {
			var all []*anypb.Any
			for _, res := range r.GetResources() {
				all = append(all, res.GetResource())
			}
			a.send(id|incremental, r.GetNonce(), sent{
				typeURL: r.GetTypeUrl(), endpoints: assignments(r.GetTypeUrl(), all), removed: r.GetRemovedResources(),
			})
		},
	}
}

func (a *acks) open(ctx context.Context, id int64) {
	c := &conversation{sent: map[string]sent{}, refused: map[string]string{}}
	if p, ok := peer.FromContext(ctx); ok {
		c.who = p.Addr.String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.envoys[id] = c
	a.log.Info("an Envoy is connected", "envoy", c.who)
}

func (a *acks) close(id int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.envoys[id]; c != nil {
		a.log.Info("an Envoy has disconnected", "envoy", c.who)
		a.left = true
	}
	delete(a.envoys, id)
	a.update()
}

func (a *acks) send(id int64, nonce string, s sent) {
	a.metrics.sent.WithLabelValues(short(s.typeURL)).Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.envoys[id]
	if c == nil {
		return
	}
	if len(c.sent) >= maxUnanswered {
		clear(c.sent)
	}
	c.sent[nonce] = s
}

// answered takes an Envoy's answer to the response with that nonce, with the words of a refusal. It
// reports whether a response was refused.
func (a *acks) answered(id int64, node *corev3.Node, nonce string, refused bool, words string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.envoys[id]
	if c == nil {
		return false
	}
	if n := node.GetId(); n != "" && !strings.HasPrefix(c.who, n) {
		c.who = n + " at " + c.who
	}
	s, ok := c.sent[nonce]
	if !ok {
		return false
	}
	delete(c.sent, nonce)
	kind := short(s.typeURL)
	if words = strings.TrimSpace(words); refused {
		a.metrics.refused.WithLabelValues(kind).Inc()
		if c.refused[kind] != words {
			a.log.Error("an Envoy refuses an update and keeps its former state", "envoy", c.who, "type", kind, "envoy_says", words)
		}
		c.refused[kind] = words
		return true
	}
	delete(c.refused, kind)
	if s.typeURL == resourcev3.EndpointType {
		c.take(s)
		a.update()
	}
	return false
}

// take records endpoints that were acknowledged.
func (c *conversation) take(s sent) {
	if c.endpoints == nil || s.complete {
		c.endpoints = map[string][]string{}
	}
	maps.Copy(c.endpoints, s.endpoints)
	for _, cluster := range s.removed {
		delete(c.endpoints, cluster)
	}
}

// update computes which endpoints all Envoys have. The caller holds a.mu.
func (a *acks) update() {
	var all acked
	for _, c := range a.envoys {
		if c.endpoints == nil {
			continue // it has accepted nothing yet, so it serves no request
		}
		has := acked{}
		for _, addrs := range c.endpoints {
			for _, addr := range addrs {
				has[addr] = true
			}
		}
		if all == nil {
			all = has
		}
		maps.DeleteFunc(all, func(addr string, _ bool) bool { return !has[addr] })
	}
	if all == nil {
		a.acked.Store(nil)
		return
	}
	a.acked.Store(&all)
}

// connected returns the number of Envoys.
func (a *acks) connected() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.envoys)
}

// pending returns the number of Envoys that owe an answer.
func (a *acks) pending() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.envoys {
		if len(c.sent) > 0 {
			n++
		}
	}
	return n
}

// notes lists the Envoys that refuse an update.
func (a *acks) notes() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.envoys) == 0 && a.left {
		out = append(out, "no Envoy is connected: the last one has left, and learns of no change")
	}
	for _, c := range a.envoys {
		for kind, why := range c.refused {
			out = append(out, fmt.Sprintf("Envoy %s refuses an update of its %s and keeps its former state: %s", c.who, kind, why))
		}
	}
	slices.Sort(out)
	return out
}

// kinds are the short names of resource types.
var kinds = map[string]string{
	resourcev3.ListenerType: "listener", resourcev3.RouteType: "routes", resourcev3.ClusterType: "clusters", resourcev3.EndpointType: "endpoints",
}

// short returns the short name of a resource type.
func short(typeURL string) string { return cmp.Or(kinds[typeURL], "other") }

// assignments returns the addresses by cluster in endpoint resources.
func assignments(typeURL string, all []*anypb.Any) map[string][]string {
	if typeURL != resourcev3.EndpointType {
		return nil
	}
	out := map[string][]string{}
	for _, res := range all {
		var a endpointv3.ClusterLoadAssignment
		if err := res.UnmarshalTo(&a); err == nil {
			out[a.GetClusterName()] = addresses(&a)
		}
	}
	return out
}

func addresses(a *endpointv3.ClusterLoadAssignment) []string {
	var out []string
	for _, l := range a.GetEndpoints() {
		for _, e := range l.GetLbEndpoints() {
			s := e.GetEndpoint().GetAddress().GetSocketAddress()
			out = append(out, net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10)))
		}
	}
	return out
}
