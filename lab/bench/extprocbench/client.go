package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
)

// clientConfig states the requests and the way of sending them.
type clientConfig struct {
	addr, mode, respMode, path, subsetOn string
	bodies                               [][]byte
	tls, sameBody                        bool
	workers, conns, total, warm          int
	chunk, respChunks, pid               int
	duration, timeout, hold              time.Duration
	rate                                 float64
	split                                bool // every request must get kv_transfer_params
	subset                               []string
}

// exchange is the outcome of one stream.
type exchange struct {
	pick     time.Duration // from the opening of the stream to the answer with the destination
	total    time.Duration // from the opening of the stream to the last answer, less -hold
	dest     string
	metaDest string
	status   int  // HTTP status of an immediate response
	changed  bool // the server returned a body that differs from the sent one
	err      error
}

// client opens streams over a fixed set of connections.
type client struct {
	cfg      *clientConfig
	stubs    []extproc.ExternalProcessorClient
	close    func()
	metadata *corev3.Metadata
	protocol *extproc.ProtocolConfiguration
	seq      atomic.Uint64
}

func newClient(cfg *clientConfig) (*client, error) {
	c := &client{cfg: cfg}
	switch cfg.mode {
	case "duplex":
		c.protocol = &extproc.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
			ResponseBodyMode: filterv3.ProcessingMode_FULL_DUPLEX_STREAMED,
		}
	case "buffered":
		c.protocol = &extproc.ProtocolConfiguration{
			RequestBodyMode:  filterv3.ProcessingMode_BUFFERED,
			ResponseBodyMode: filterv3.ProcessingMode_STREAMED,
		}
	default:
		return nil, fmt.Errorf("unknown mode %q", cfg.mode)
	}
	if cfg.respMode != "same" {
		c.protocol.ResponseBodyMode = filterv3.ProcessingMode_NONE
	}
	if cfg.subset != nil {
		list := make([]any, len(cfg.subset))
		for i, s := range cfg.subset {
			list[i] = s
		}
		st, err := structpb.NewStruct(map[string]any{"x-gateway-destination-endpoint-subset": list})
		if err != nil {
			return nil, err
		}
		c.metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb.subset_hint": st}}
	}
	creds := insecure.NewCredentials()
	if cfg.tls {
		creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // a load test, often against a self-signed server
	}
	var conns []*grpc.ClientConn
	c.close = func() {
		for _, cc := range conns {
			_ = cc.Close()
		}
	}
	for range cfg.conns {
		cc, err := grpc.NewClient(cfg.addr, grpc.WithTransportCredentials(creds),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			c.close()
			return nil, err
		}
		conns = append(conns, cc)
		c.stubs = append(c.stubs, extproc.NewExternalProcessorClient(cc))
	}
	return c, nil
}

// readBodies reads one body a line; without a file it makes up a small one.
func readBodies(path string) ([][]byte, error) {
	if path == "" {
		return [][]byte{[]byte(`{"model":"sim","messages":[{"role":"user","content":"hello"}]}`)}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out [][]byte
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if len(sc.Bytes()) > 0 {
			out = append(out, bytes.Clone(sc.Bytes()))
		}
	}
	if len(out) == 0 && sc.Err() == nil {
		return nil, fmt.Errorf("%s holds no bodies", path)
	}
	return out, sc.Err()
}

// do plays one HTTP request. In duplex mode it sends all messages of a phase without
// waiting for answers; in buffered mode each message waits for its answer, as in Envoy.
func (c *client) do(ctx context.Context) (x exchange) {
	n := c.seq.Add(1)
	body := c.cfg.bodies[0]
	if !c.cfg.sameBody {
		body = c.cfg.bodies[n%uint64(len(c.cfg.bodies))]
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.timeout)
	defer cancel()

	start := time.Now()
	if c.cfg.split {
		ctx = metadata.AppendToOutgoingContext(ctx, envoy.KeyWait, "30000", envoy.KeySplitBody, strconv.Itoa(16<<20))
	}
	st, err := c.stubs[n%uint64(len(c.stubs))].Process(ctx)
	if err != nil {
		x.err = err
		return x
	}
	first := true
	send := func(m *extproc.ProcessingRequest) error {
		if first {
			m.ProtocolConfig = c.protocol
		}
		if first || c.cfg.subsetOn == "all" {
			m.MetadataContext = c.metadata
		}
		first = false
		return st.Send(m)
	}

	x.err = func() error {
		if err := send(requestHeaders(c.cfg.path, len(body), n)); err != nil {
			return err
		}
		var got []byte
		var err error
		if c.cfg.mode == "duplex" {
			for rest := body; ; {
				k := min(c.cfg.chunk, len(rest))
				if err := send(requestBody(rest[:k], k == len(rest))); err != nil {
					return err
				}
				if rest = rest[k:]; len(rest) == 0 {
					break
				}
			}
			got, err = c.awaitDuplexRequest(st, start, &x)
		} else {
			got, err = c.awaitBuffered(st, send, body, start, &x)
		}
		if err != nil || x.status != 0 {
			return err
		}
		x.changed = got != nil && !bytes.Equal(got, body)
		return c.playResponse(st, send)
	}()
	x.total = time.Since(start) - c.cfg.hold
	if x.err != nil && errors.Is(x.err, io.EOF) && x.dest != "" && x.status == 0 {
		x.err = nil // a picker may end the stream once it has chosen
	}
	// Half-close and wait for the server to end the stream, as Envoy does, so that the
	// measurement includes its clean-up.
	_ = st.CloseSend() // a stream that has already ended needs none
	for err = nil; err == nil && x.err == nil; {
		_, err = st.Recv()
	}
	return x
}

// awaitDuplexRequest reads up to the last streamed body chunk and returns the body.
func (c *client) awaitDuplexRequest(st extproc.ExternalProcessor_ProcessClient, start time.Time, x *exchange) ([]byte, error) {
	var got []byte
	for {
		r, err := st.Recv()
		if err != nil {
			return nil, err
		}
		x.note(r, start)
		if x.status != 0 {
			return nil, nil
		}
		switch v := r.Response.(type) {
		case *extproc.ProcessingResponse_RequestHeaders:
		case *extproc.ProcessingResponse_RequestBody:
			s := v.RequestBody.GetResponse().GetBodyMutation().GetStreamedResponse()
			if s == nil {
				return nil, errors.New("body answer without a streamed response")
			}
			got = append(got, s.Body...)
			if s.EndOfStream {
				return got, nil
			}
		default:
			return nil, fmt.Errorf("unexpected %T in the request phase", v)
		}
	}
}

// awaitBuffered waits for the header answer, sends the whole body and waits for its answer.
func (c *client) awaitBuffered(st extproc.ExternalProcessor_ProcessClient, send func(*extproc.ProcessingRequest) error,
	body []byte, start time.Time, x *exchange,
) ([]byte, error) {
	r, err := st.Recv()
	if err != nil {
		return nil, err
	}
	x.note(r, start)
	if x.status != 0 {
		return nil, nil
	}
	if r.GetRequestHeaders() == nil {
		return nil, fmt.Errorf("unexpected %T for request headers", r.Response)
	}
	if err := send(requestBody(body, true)); err != nil {
		return nil, err
	}
	if r, err = st.Recv(); err == nil && r.GetOverrideMessageTimeout() != nil {
		r, err = st.Recv() // the answer comes after a prefill elsewhere
	}
	if err != nil {
		return nil, err
	}
	x.note(r, start)
	if x.status != 0 {
		return nil, nil
	}
	if given := r.GetDynamicMetadata().GetFields()[envoy.MetadataSplit] != nil; given != c.cfg.split {
		return nil, fmt.Errorf("kv_transfer_params came: %v", given)
	}
	rb := r.GetRequestBody()
	if rb == nil {
		return nil, fmt.Errorf("unexpected %T for request body", r.Response)
	}
	if m, ok := rb.GetResponse().GetBodyMutation().GetMutation().(*extproc.BodyMutation_Body); ok {
		return m.Body, nil
	}
	return nil, nil
}

// playResponse sends the model server's answer through the processor.
func (c *client) playResponse(st extproc.ExternalProcessor_ProcessClient, send func(*extproc.ProcessingRequest) error) error {
	if c.cfg.hold > 0 {
		time.Sleep(c.cfg.hold)
	}
	if c.cfg.respMode == "none" {
		return nil
	}
	if err := send(responseHeaders(c.cfg.respChunks > 1)); err != nil {
		return err
	}
	if c.cfg.respMode == "headers" {
		_, err := st.Recv()
		return err
	}
	if c.cfg.mode == "buffered" {
		if err := expect(st, (*extproc.ProcessingResponse).GetResponseHeaders); err != nil {
			return err
		}
		for i := range c.cfg.respChunks {
			if err := send(responseBody(i, i == c.cfg.respChunks-1)); err != nil {
				return err
			}
			if err := expect(st, (*extproc.ProcessingResponse).GetResponseBody); err != nil {
				return err
			}
		}
		return nil
	}
	// A reader receives answers while this goroutine sends chunks: either side may be
	// ahead.
	recv := make(chan error, 1)
	go func() { recv <- awaitDuplexResponse(st) }()
	for i := range c.cfg.respChunks {
		if err := send(responseBody(i, i == c.cfg.respChunks-1)); err != nil {
			return errors.Join(err, <-recv)
		}
	}
	return <-recv
}

// expect receives one answer and checks that get accepts its kind.
func expect[T any](st extproc.ExternalProcessor_ProcessClient, get func(*extproc.ProcessingResponse) *T) error {
	r, err := st.Recv()
	if err == nil && get(r) == nil {
		err = fmt.Errorf("unexpected %T in the response phase", r.Response)
	}
	return err
}

// awaitDuplexResponse reads up to the last streamed response chunk.
func awaitDuplexResponse(st extproc.ExternalProcessor_ProcessClient) error {
	for {
		r, err := st.Recv()
		if err != nil {
			return err
		}
		if r.GetImmediateResponse() != nil {
			return errors.New("immediate response in the response phase")
		}
		if r.GetResponseBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetEndOfStream() {
			return nil
		}
	}
}

// note records the destination from the first answer that names one.
func (x *exchange) note(r *extproc.ProcessingResponse, start time.Time) {
	if im := r.GetImmediateResponse(); im != nil {
		x.status = int(im.GetStatus().GetCode())
		x.pick = time.Since(start)
		return
	}
	if x.dest != "" {
		return
	}
	var common *extproc.CommonResponse
	switch v := r.Response.(type) {
	case *extproc.ProcessingResponse_RequestHeaders:
		common = v.RequestHeaders.GetResponse()
	case *extproc.ProcessingResponse_RequestBody:
		common = v.RequestBody.GetResponse()
	}
	for _, h := range common.GetHeaderMutation().GetSetHeaders() {
		if strings.EqualFold(h.GetHeader().GetKey(), envoy.HeaderDestination) {
			x.dest = string(h.GetHeader().GetRawValue()) + h.GetHeader().GetValue()
		}
	}
	if lb := r.GetDynamicMetadata().GetFields()[envoy.MetadataLB].GetStructValue(); lb != nil {
		x.metaDest = lb.Fields[envoy.HeaderDestination].GetStringValue()
	}
	if x.dest == "" {
		x.dest = x.metaDest
	}
	if x.dest != "" {
		x.pick = time.Since(start)
	}
}

// runClient warms up, then measures.
func runClient(ctx context.Context, cfg *clientConfig) (*report, error) {
	c, err := newClient(cfg)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if cfg.warm > 0 {
		c.run(ctx, min(warmWorkers, cfg.workers), cfg.warm, 0, 0)
	}
	rep := &report{cfg: cfg, loadBefore: loadAverage()}
	if cfg.pid != 0 {
		if rep.before, err = readProc(cfg.pid); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	rep.results = c.run(ctx, cfg.workers, cfg.total, cfg.duration, cfg.rate)
	rep.elapsed = time.Since(start)
	if cfg.pid != 0 {
		if rep.after, err = readProc(cfg.pid); err != nil {
			return nil, err
		}
	}
	rep.loadAfter = loadAverage()
	return rep, nil
}

// warmWorkers send the requests before counting starts: the ids of so many long bodies are
// computed in time even if none is known.
const warmWorkers = 2

// run sends total requests, or sends for the duration if it is set.
func (c *client) run(ctx context.Context, workers, total int, d time.Duration, rate float64) []exchange {
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
		total = 1 << 40
	}
	var issued atomic.Int64
	start := time.Now()
	per := make([][]exchange, workers)
	var wg sync.WaitGroup
	for w := range per {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := issued.Add(1) - 1
				if i >= int64(total) {
					return
				}
				if rate > 0 {
					due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
					select {
					case <-ctx.Done():
						return
					case <-time.After(time.Until(due)):
					}
				}
				// A request in flight at the end of the duration still completes.
				per[w] = append(per[w], c.do(context.WithoutCancel(ctx)))
			}
		})
	}
	wg.Wait()
	var all []exchange
	for _, p := range per {
		all = append(all, p...)
	}
	return all
}
