package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

// A torture is one Envoy in one body mode, with replicas that keep their requests.
type torture struct {
	*stack
	mode    string
	fronts  []front
	seen    *arrivals
	clients map[string]*http.Client
	extra   map[string]bool // headers that others add

	sent     int // requests, and the names of their cases
	aborted  int
	bodiless int // requests that announced a body and had none
	hinted   int // requests that arrived with a destination
}

const streamed = "STREAMED" // a mode that should not be configured: it cannot carry a hint

var (
	bodyModes = []string{string(envoy.Buffered), string(envoy.BufferedPartial), streamed, string(envoy.FullDuplex)}
	protocols = []string{"http/1.1", "h2c"} // of the client
)

// startTorture starts a stack whose body mode may be any of Envoy's. limit is
// Envoy's limit of a body, 0 for the default; edit may change the bootstrap.
func startTorture(t *testing.T, mode string, limit int, s setup) *torture {
	t.Helper()
	tor := &torture{mode: mode, seen: newArrivals(), clients: map[string]*http.Client{}}
	s.envoy.Mode, s.envoy.BodyLimit = envoy.Mode(mode), limit
	if mode == streamed {
		s.envoy.Mode = envoy.Buffered
	}
	edit := s.bootstrap
	s.bootstrap = func(boot string) string {
		if mode == streamed {
			boot = strings.Replace(boot, "request_body_mode: BUFFERED", "request_body_mode: STREAMED", 1)
		}
		if edit != nil {
			boot = edit(boot)
		}
		return boot
	}
	s.replicas, s.sim = 2, fast()
	s.front = func(replica string) string {
		f := tor.seen.before(t, replica)
		tor.fronts = append(tor.fronts, f)
		return f.addr
	}
	tor.stack = start(t, s)
	h1 := &http.Transport{MaxIdleConnsPerHost: 4}
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	for i, tr := range []*http.Transport{h1, h2} {
		tor.clients[protocols[i]] = &http.Client{Transport: tr, Timeout: patience}
		t.Cleanup(tr.CloseIdleConnections)
	}
	return tor
}

// sent is one HTTP request and its expected effect.
type sent struct {
	method   string // default POST
	path     string // default that of chat completions
	body     []byte
	arrives  []byte // default body
	chunked  bool   // without Content-Length; over HTTP/2 the end comes as an empty DATA frame
	trailers bool   // over HTTP/2 the end comes as trailers
	header   http.Header
	dropped  bool   // the first replica reads it and closes the connection
	twice    bool   // the bytes may arrive twice over HTTP/2: Envoy's own defect, see docs/protocol.md
	status   int    // default 200
	says     string // the beginning of the answer's text
	hint     bool   // a destination must have arrived
}

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
)

// only hides a reader's other methods, so that the length is not known.
type only struct{ io.Reader }

// send sends one request by every protocol and compares the arrivals.
func (tor *torture) send(t *testing.T, s sent) {
	t.Helper()
	for _, proto := range protocols {
		tor.sendBy(t, proto, s)
	}
}

// request builds s as a request of its own case.
func (tor *torture) request(t *testing.T, s *sent) (*http.Request, string) {
	t.Helper()
	if s.method == "" {
		s.method = http.MethodPost
	}
	if s.path == "" {
		s.path = chatPath
	}
	if s.arrives == nil {
		s.arrives = s.body
	}
	if s.status == 0 {
		s.status = http.StatusOK
	}
	var body io.Reader
	if s.body != nil {
		body = bytes.NewReader(s.body)
		if s.chunked || s.trailers {
			body = only{body}
		}
	}
	req := must.Get(http.NewRequest(s.method, tor.envoy.URL+s.path, body))(t)
	if s.header != nil {
		req.Header = s.header.Clone()
	}
	tor.sent++
	name := fmt.Sprint(tor.sent)
	req.Header.Set(caseHeader, name)
	if s.trailers {
		req.Trailer = http.Header{"X-Checksum": {"1"}}
	}
	if s.dropped {
		tor.seen.dropNext(name)
	}
	return req, name
}

// sendBy sends one request by one protocol and returns the arrivals.
func (tor *torture) sendBy(t *testing.T, proto string, s sent) []arrival {
	t.Helper()
	req, name := tor.request(t, &s)
	resp, err := tor.clients[proto].Do(req)
	if err != nil {
		t.Errorf("%s: %v", proto, err)
		return nil
	}
	answer, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Errorf("%s: the answer breaks off: %v", proto, err)
	}
	got := tor.seen.take(name)
	if resp.StatusCode != s.status || !strings.HasPrefix(string(answer), s.says) {
		t.Errorf("%s: status %d, want %d: %.200s", proto, resp.StatusCode, s.status, answer)
	}
	if s.status != http.StatusOK {
		if len(got) > 0 {
			t.Errorf("%s: answered %d, but %d requests arrived", proto, s.status, len(got))
		}
		return nil
	}
	times := 1
	if s.dropped {
		times = 2
	}
	if len(got) != times {
		t.Errorf("%s: arrived %d times, want %d", proto, len(got), times)
		return nil
	}
	if got[0].header.Get(envoy.HeaderDestination) != "" {
		tor.hinted++
	}
	for _, one := range got {
		tor.compare(t, proto, &s, one)
	}
	return got
}

// compare expects the same bytes, and only the expected headers.
func (tor *torture) compare(t *testing.T, proto string, s *sent, got arrival) {
	t.Helper()
	body := got.body
	if half := len(body) / 2; s.twice && proto == "h2c" && half == len(s.arrives) && bytes.Equal(body[:half], body[half:]) {
		body = body[:half]
	}
	if got.method != s.method || !bytes.Equal(body, s.arrives) {
		t.Errorf("%s: sent %s with %d bytes, %s with %d bytes arrived", proto, s.method, len(s.body), got.method, len(got.body))
	}
	for name, values := range got.header {
		switch name {
		case "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding", "X-Forwarded-Proto", "X-Request-Id", "Trailer", "Te", caseHeader:
		case "X-Gateway-Destination-Endpoint":
			first, _, _ := strings.Cut(values[0], ",")
			if len(values) != 1 || !slices.Contains(tor.addrs, first) {
				t.Errorf("%s: destination %q", proto, values)
			}
		default:
			if !tor.extra[name] {
				t.Errorf("%s: header %s: %q arrived", proto, name, values)
			}
		}
	}
	if hinted := got.header.Get(envoy.HeaderDestination) != ""; s.hint && !hinted {
		t.Errorf("%s: no hint arrived\n%s", proto, page(t, "http://"+tor.admin+"/debug/explain?n=1"))
	}
}

// chatOf is a chat of so many words.
func chatOf(words int) []byte {
	return []byte(`{"model":"sim","seed":9223372036854775807,"messages":[{"role":"user","content":"` + strings.Repeat("word ", words) + `"}]}`)
}

// sized is a completion of n bytes that brings its token ids along, as a request
// with images is large without being long.
func sized(n int) []byte {
	head, tail := `{"model":"sim","prompt":[1,2,3,4,5,6,7,8],"seed":9223372036854775807,"user":"`, `"}`
	return []byte(head + strings.Repeat("x", n-len(head)-len(tail)) + tail)
}

// TestTorture takes every case through real Envoy in every body mode.
func TestTorture(t *testing.T) {
	t.Parallel()
	for _, mode := range bodyModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			startTorture(t, mode, 0, setup{}).cases(t)
		})
	}
}

// cases are requests that every body mode must bear, in one Envoy.
func (tor *torture) cases(t *testing.T) {
	hint := tor.mode != streamed
	t.Run("odd bodies", tor.oddBodies)
	t.Run("with and without a length", func(t *testing.T) { // without: an empty chunk ends it
		tor.send(t, sent{body: chatOf(100), hint: hint})
		tor.send(t, sent{body: chatOf(100), chunked: true, hint: hint})
	})
	t.Run("over 1 MB", func(t *testing.T) { // where Envoy 1.35 to 1.37 send the end twice
		tor.send(t, sent{path: completionsPath, body: sized(1_500_000), hint: hint})
		tor.send(t, sent{path: completionsPath, body: sized(1_500_000), chunked: true, hint: hint})
	})
	t.Run("ended by trailers", func(t *testing.T) {
		tor.send(t, tor.trailing(sent{body: chatOf(100)}))
		tor.send(t, tor.trailing(sent{path: completionsPath, body: sized(1_500_000)}))
	})
	t.Run("trailers alone", func(t *testing.T) {
		tor.send(t, sent{body: []byte{}, trailers: true})
		if tor.mode == string(envoy.Buffered) || tor.mode == string(envoy.BufferedPartial) {
			tor.bodiless++ // over HTTP/2: where Envoy does not send trailers, nothing follows the headers
		}
	})
	t.Run("without a body", func(t *testing.T) {
		for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS"} {
			tor.send(t, sent{method: method})
		}
		tor.send(t, sent{method: "GET", path: "/v1/models"})
	})
	t.Run("another route", func(t *testing.T) {
		tor.send(t, sent{path: "/v1/embeddings", body: chatOf(50_000)})
		tor.send(t, sent{path: "/v1/embeddings", body: chatOf(10), trailers: true, twice: tor.mode != string(envoy.Buffered)})
	})
	t.Run("a client's own headers", func(t *testing.T) {
		tor.send(t, sent{body: chatOf(10), header: tor.foreign(), hint: hint})
		tor.send(t, sent{body: []byte("{"), header: tor.foreign()})
		tor.send(t, sent{method: "GET", path: "/v1/models", header: tor.foreign()})
	})
	t.Run("disabled", tor.disabled)
	t.Run("client aborts", tor.abort)
	t.Run("20 MB", func(t *testing.T) {
		tor.send(t, sent{path: completionsPath, body: sized(20_000_000), hint: hint})
	})
	t.Run("the first replica breaks off", func(t *testing.T) {
		tor.send(t, sent{path: completionsPath, body: sized(2_000_000), dropped: true, hint: hint})
		tor.send(t, tor.trailing(sent{path: completionsPath, body: sized(2_000_000), dropped: true}))
	})
	t.Run("the first replica dies", tor.firstDies)
	t.Run("nothing is left over", tor.leftOver)
	t.Run("the router dies", tor.routerDies)
}

// trailing ends s by trailers and sets the result that each mode gives.
func (tor *torture) trailing(s sent) sent {
	s.trailers = true
	judged := tor.mode == string(envoy.Buffered) || tor.mode == string(envoy.FullDuplex)
	s.hint, s.twice = judged, !judged
	return s
}

// oddBodies sends a corpus that is sensitive to rewriting.
func (tor *torture) oddBodies(t *testing.T) {
	const bodies = 80
	before := tor.hinted
	for i, body := range corpus(1, bodies) {
		tor.send(t, sent{body: body, chunked: i%2 == 1})
	}
	got := tor.hinted - before
	if want := 2 * bodies / 4; tor.mode != streamed && got < want { // the others are no valid requests
		t.Errorf("%d of %d requests got a hint, want %d", got, 2*bodies, want)
	}
}

// disabled sends requests while no model is routed: they arrive as they would without a router.
func (tor *torture) disabled(t *testing.T) {
	set := func(policy string) {
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPatch, "http://"+tor.admin+"/policy", strings.NewReader(`{"route_policy":`+policy+`}`)))(t)
		resp := must.Get(http.DefaultClient.Do(req))(t)
		if resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Fatalf("route_policy %s: status %d", policy, resp.StatusCode)
		}
	}
	set(`"disabled"`)
	before := tor.hinted
	for i, body := range corpus(2, 8) {
		tor.send(t, sent{body: body, chunked: i%2 == 1, header: tor.foreign()})
	}
	tor.send(t, sent{body: chatOf(100)})
	if tor.hinted != before {
		t.Errorf("%d requests have a destination", tor.hinted-before)
	}
	set("null")
}

// foreign is a client's own copy of the headers we own.
func (tor *torture) foreign() http.Header {
	h := http.Header{}
	h.Add(envoy.HeaderDestination, "6.6.6.6:66")
	h.Add(envoy.HeaderDestination, tor.addrs[1])
	h.Set(envoy.HeaderRank, "7")
	return h
}

// abort leaves requests in the middle of their bodies.
func (tor *torture) abort(t *testing.T) {
	for _, proto := range protocols {
		for _, size := range []int{10, 100_000, 2_000_000} {
			tor.abortAfter(t, proto, size)
			tor.idle(t)
		}
	}
	if whole := tor.seen.take("aborted"); len(whole) > 0 {
		t.Errorf("%d aborted bodies arrived as if they were whole", len(whole))
	}
	tor.send(t, sent{body: chatOf(100), hint: tor.mode != streamed})
}

func (tor *torture) abortAfter(t *testing.T, proto string, size int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := io.Pipe()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, tor.envoy.URL+chatPath, r))(t)
	req.Header.Set(caseHeader, "aborted")
	tor.aborted++
	done := make(chan error, 1)
	go func() {
		resp, err := tor.clients[proto].Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	must.Get(w.Write(bytes.Repeat([]byte("x"), size)))(t)
	tor.until("the router follows the request", func() bool { return tor.metrics()["warmroute_streams"] > 0 })
	cancel()
	w.CloseWithError(context.Canceled)
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%s, after %d bytes: %v", proto, size, err)
	}
}

// firstDies stops the replica that is named first: the other one gets every byte.
func (tor *torture) firstDies(t *testing.T) {
	a := tor.sendBy(t, "http/1.1", sent{body: chatOf(100)})
	if len(a) != 1 {
		return
	}
	i := slices.Index(tor.addrs, a[0].at)
	tor.fronts[i].die() // the router notices later than the next requests come
	for _, proto := range protocols {
		for range 2 {
			b := tor.sendBy(t, proto, sent{path: completionsPath, body: sized(2_000_000)})
			if len(b) == 1 && b[0].at == tor.addrs[i] {
				t.Errorf("%s: a dead replica served", proto)
			}
		}
	}
}

// idle waits until the router follows no request and charges none.
func (tor *torture) idle(t *testing.T) {
	t.Helper()
	tor.until("every stream ends", func() bool {
		m := tor.metrics()
		left := m["warmroute_streams"]
		for name, v := range m {
			if strings.HasPrefix(name, "warmroute_in_flight_requests{") {
				left += v
			}
		}
		return left == 0
	})
}

// leftOver compares the router's counts with the requests sent: every request has
// one reason, aborted ones included, and as many arrived with a hint as it
// counted.
func (tor *torture) leftOver(t *testing.T) {
	tor.idle(t)
	sum, hints := 0, 0
	reasons := tor.reasons()
	for reason, n := range reasons {
		sum += n
		if decision.Reason(reason).Hint() {
			hints += n
		}
	}
	if sum != tor.sent+tor.aborted {
		t.Errorf("%d requests and %d aborted ones have %d reasons: %v", tor.sent, tor.aborted, sum, reasons)
	}
	unfinished := tor.aborted + tor.bodiless
	if tor.mode == streamed { // decided by the headers
		unfinished = 0
	}
	if got := reasons[string(decision.ReasonUnfinished)]; got != unfinished {
		t.Errorf("%d requests are said to be unfinished, want %d: %v", got, unfinished, reasons)
	}
	if hints != tor.hinted {
		t.Errorf("%d requests arrived with a hint, the router says %d: %v", tor.hinted, hints, reasons)
	}
}

// routerDies: clients cannot set warmroute's headers then either. test/failopen
// counts the requests that FULL_DUPLEX_STREAMED loses until Envoy detects it.
func (tor *torture) routerDies(t *testing.T) {
	tor.extproc.Kill()
	tor.until("Envoy knows that the router is dead", func() bool {
		resp := must.Get(http.Post(tor.envoy.URL+"/v1/chat/completions", "application/json", strings.NewReader("{}")))(t)
		resp.Body.Close()
		return resp.StatusCode != http.StatusInternalServerError // the replica refuses the body
	})
	before := tor.hinted
	tor.send(t, sent{body: chatOf(10), header: tor.foreign()})
	tor.send(t, sent{method: "GET", path: "/v1/models", header: tor.foreign()})
	if tor.hinted != before {
		t.Errorf("%d requests arrived with a client's own destination", tor.hinted-before)
	}
}

// TestBodiesBeyondTheLimit: 3 MB where Envoy may hold 1 MiB.
func TestBodiesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	for _, mode := range bodyModes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tor := startTorture(t, mode, 1<<20, setup{})
			big := sent{path: completionsPath, body: sized(3_000_000), hint: mode == string(envoy.FullDuplex)}
			if mode == string(envoy.Buffered) {
				big.status = http.StatusRequestEntityTooLarge
			}
			tor.send(t, big)
			big.chunked = true
			tor.send(t, big)
			if mode == string(envoy.FullDuplex) { // goes back in one piece, which Envoy then holds
				tor.sendBy(t, "h2c", sent{path: completionsPath, body: big.body, trailers: true, status: http.StatusRequestEntityTooLarge})
			}
			if n := tor.reasons()["body_cut"]; (n == 4) != (mode == string(envoy.BufferedPartial)) {
				t.Errorf("%d bodies were cut", n)
			}
		})
	}
}
