package e2e

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// neighbour is another external processor in the same filter chain: it
// adds a header and turns a body's first byte into a line break.
type neighbour struct {
	extprocv3.UnimplementedExternalProcessorServer
	addr string
	mode string // of the request body
}

// neighbourHeader is the header that it adds: whether it saw a destination.
const neighbourHeader = "X-Neighbour"

func startNeighbour(t *testing.T, mode string) *neighbour {
	t.Helper()
	lis := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	n := &neighbour{addr: lis.Addr().String(), mode: mode}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	extprocv3.RegisterExternalProcessorServer(g, n)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(lis); err != nil {
			t.Errorf("neighbour: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(g.Stop)
	return n
}

// Process implements the protocol as a gateway's filter would.
func (n *neighbour) Process(ss extprocv3.ExternalProcessor_ProcessServer) error {
	first := true
	for {
		m, err := ss.Recv()
		if err != nil {
			return nil // the request is over
		}
		var answer *extprocv3.ProcessingResponse
		switch v := m.Request.(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			answer = n.headers(v.RequestHeaders)
		case *extprocv3.ProcessingRequest_RequestBody:
			answer = n.body(v.RequestBody, first)
			first = first && len(v.RequestBody.Body) == 0
		case *extprocv3.ProcessingRequest_RequestTrailers:
			answer = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
		default:
			return fmt.Errorf("neighbour: asked for %T", m.Request)
		}
		if err := ss.Send(answer); err != nil {
			return nil
		}
	}
}

func (n *neighbour) headers(h *extprocv3.HttpHeaders) *extprocv3.ProcessingResponse {
	saw := "nothing"
	for _, hv := range h.GetHeaders().GetHeaders() {
		if hv.GetKey() == envoy.HeaderDestination {
			saw = "a destination"
		}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
			SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: neighbourHeader, RawValue: []byte(saw)}}},
		}},
	}}}
}

func (n *neighbour) body(b *extprocv3.HttpBody, first bool) *extprocv3.ProcessingResponse {
	if first && len(b.Body) > 0 {
		b.Body[0] = '\n'
	}
	mutation := &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: b.Body}}
	if n.mode == string(envoy.FullDuplex) {
		mutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: b.Body, EndOfStream: b.EndOfStream},
		}}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{
		Response: &extprocv3.CommonResponse{BodyMutation: mutation},
	}}}
}

// join puts the neighbour into the filter chain at a place of the bootstrap.
func (n *neighbour) join(t *testing.T, boot, place string) string {
	host, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		t.Fatal(err)
	}
	trailers := modev3.ProcessingMode_SKIP
	if n.mode == string(envoy.FullDuplex) {
		trailers = modev3.ProcessingMode_SEND
	}
	boot = insert(t, boot, place, fmt.Sprintf(`
          - name: neighbour
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: neighbour}, timeout: 0s}
              message_timeout: 10s
              processing_mode: {request_header_mode: SEND, request_body_mode: %s, request_trailer_mode: %s, response_header_mode: SKIP}
`, n.mode, trailers))
	return insert(t, boot, atLastCluster, fmt.Sprintf(`
  - name: neighbour
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: neighbour
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %s, port_value: %s}}}}]}]
`, host, port))
}

// TestAnotherProcessorInTheChain: a filter before the router changes bodies, and the
// router judges and passes on the changed body; a filter behind it sees its header and
// may change bodies, too.
func TestAnotherProcessorInTheChain(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{string(envoy.Buffered), string(envoy.FullDuplex)} {
		for _, theirs := range []string{string(envoy.Buffered), streamed, string(envoy.FullDuplex)} {
			if mode == string(envoy.FullDuplex) && theirs != mode {
				continue // the router's own mode makes no difference to theirs
			}
			for where, place := range map[string]string{"before": atExtProc, "behind": atRouter} {
				t.Run(fmt.Sprintf("%s, %s %s", mode, theirs, where), func(t *testing.T) {
					t.Parallel()
					n := startNeighbour(t, theirs)
					tor := startTorture(t, mode, 0, setup{bootstrap: func(boot string) string { return n.join(t, boot, place) }})
					tor.extra = map[string]bool{neighbourHeader: true}
					saw := "nothing"
					if where == "behind" {
						saw = "a destination"
					}
					tor.chained(t, saw)
				})
			}
		}
	}
}

// chained sends bodies whose first byte a neighbour changes; saw is the neighbour's view
// of requests with a hint.
func (tor *torture) chained(t *testing.T, saw string) {
	for name, s := range map[string]sent{
		"short":            {body: chatOf(10)},
		"without a length": {body: chatOf(10), chunked: true},
		"10 kB":            {path: completionsPath, body: sized(10_000)},
		"300 kB":           {path: completionsPath, body: sized(300_000)},
		"300 kB, chunked":  {path: completionsPath, body: sized(300_000), chunked: true},
		"3 MB":             {path: completionsPath, body: sized(3_000_000)},
	} {
		t.Run(name, func(t *testing.T) {
			s.body = append([]byte(" "), s.body...)
			s.arrives = append([]byte("\n"), s.body[1:]...)
			s.hint = true
			for _, proto := range protocols {
				for _, got := range tor.sendBy(t, proto, s) {
					if v := got.header[neighbourHeader]; len(v) != 1 || v[0] != saw {
						t.Errorf("%s: the neighbour saw %q, want %s", proto, v, saw)
					}
				}
			}
		})
	}
	t.Run("without a body", func(t *testing.T) { tor.send(t, sent{method: http.MethodGet, path: "/v1/models"}) })
	tor.leftOver(t)
}
