package filter

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/prefill"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// fakeLegs answers every leg alike, once it may.
type fakeLegs struct {
	answer prefill.Answer
	err    error
	hold   bool // until the request ends
	got    chan prefill.Leg
}

func (f *fakeLegs) Send(ctx context.Context, l *prefill.Leg) (prefill.Answer, error) {
	one := *l
	one.Body = bytes.Clone(l.Body)
	f.got <- one
	if f.hold {
		<-ctx.Done()
		return prefill.Answer{}, ctx.Err()
	}
	return f.answer, f.err
}

// apartBench is a router over one replica that computes prompts for others and has every
// prompt, and one that answers.
func apartBench(t *testing.T, o SplitOptions) (*bench, *Server) {
	t.Helper()
	p, d := replica(1), replica(2)
	p.Role, d.Role = fleet.RolePrefill, fleet.RoleDecode
	for _, r := range []*fleet.Replica{p, d} {
		r.Version, r.Transfer.Connector = "0.32.0", "NixlConnector"
	}
	b := newBench(t, fakeTokens{n: 50_000}, p, d)
	b.holds(p.Addr, 0, 1<<20)
	return b, NewServer(b.router, ServerOptions{Split: o})
}

const (
	prefillAddr = "10.0.0.1:8000"
	decodeAddr  = "10.0.0.2:8000"
	spaced      = `{"max_tokens":9,"model":"m","messages":[{"role":"user","content":"hi"}]}` + " \n"
)

// patient is what Envoy's configuration sends with a stream.
func patient(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, envoy.KeyWait, "60000", envoy.KeySplitBody, "1000")
}

// ask sends a request's headers and body, and returns the answers to the body.
func ask(t *testing.T, ctx context.Context, s *Server, mode *request, answers int) []*response { //nolint:revive // t first, as in all helpers
	t.Helper()
	stream := must.Get(dial(t, s).Process(ctx))(t)
	for _, m := range []*request{mode, body(spaced, true)} {
		must.Do(t, stream.Send(m))
	}
	var out []*response
	for range answers + 1 {
		r := must.Get(stream.Recv())(t)
		out = append(out, r)
	}
	_ = stream.CloseSend()
	return out[1:]
}

// TestLegsOfBodies: whatever becomes of a leg, the request goes to the same replica; what it
// brings comes beside the body, for that replica alone.
func TestLegsOfBodies(t *testing.T) {
	const params = `{"do_remote_prefill":true}`
	four := 4
	for name, c := range map[string]struct {
		legs   fakeLegs
		splice string
		why    decision.SplitReason
		counts int // of the prompt, in P's cache by its answer
	}{
		"pulled":    {fakeLegs{answer: prefill.Answer{Params: []byte(params), Tokens: 9, Cached: &four}}, `,"kv_transfer_params":` + params, decision.SplitDone, 4},
		"no params": {fakeLegs{err: prefill.ErrNoParams}, "", decision.SplitNoParams, 0},
		"refused":   {fakeLegs{err: prefill.ErrRefused}, "", decision.SplitPrefillRefused, 0},
		"busy":      {fakeLegs{err: prefill.ErrBusy}, "", decision.SplitPrefillBusy, 0},
		"slow":      {fakeLegs{err: context.DeadlineExceeded}, "", decision.SplitPrefillSlow, 0},
		"failed":    {fakeLegs{err: errors.New("broken")}, "", decision.SplitPrefillFailed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c.legs.got = make(chan prefill.Leg, 1)
			b, s := apartBench(t, SplitOptions{Transport: TransportPull, MaxWait: 30 * time.Second, Legs: &c.legs})
			counted := make(chan Prefilled, 1)
			b.router.o.Prefilled = func(p *Prefilled) { counted <- *p }
			out := ask(t, patient(t.Context()), s, headers(buffered, "POST", chatPath, false), 2)
			leg := <-c.legs.got
			if leg.Addr != prefillAddr || string(leg.Body) != spaced || leg.ID != "id-1" || !slices.Equal(leg.Lengths, []openai.Span{{From: 1, To: 15}}) || leg.Timeout <= 0 || leg.Timeout > 30*time.Second {
				t.Errorf("leg %+v", leg)
			}
			if wait := out[0].GetOverrideMessageTimeout().AsDuration(); wait != leg.Timeout+answerMargin || out[0].Response != nil {
				t.Errorf("first answer %v", out[0])
			}
			if destination(out[1:]) != decodeAddr {
				t.Errorf("answer %v", out[1])
			}
			split := out[1].GetDynamicMetadata().GetFields()[envoy.MetadataSplit].GetStructValue().GetFields()
			if got := split[envoy.KeySplitParams].GetStringValue(); got != c.splice {
				t.Errorf("params %s, want %s", got, c.splice)
			}
			if c.splice != "" && (split[envoy.KeySplitTo].GetStringValue() != decodeAddr || split[envoy.KeySplitSize].GetNumberValue() != float64(len(spaced)) || split[envoy.KeySplitAt].GetNumberValue() != float64(strings.LastIndex(spaced, "}"))) {
				t.Errorf("splice %v", split)
			}
			got := b.last().Split
			if got.Prefill != prefillAddr || got.Reason != c.why || got.Moved != c.legs.answer.Tokens || (got.Hit == nil) != (c.legs.answer.Cached == nil) || got.Hit != nil && *got.Hit != 4 {
				t.Errorf("record %+v", got)
			}
			own := out[1].GetDynamicMetadata().GetFields()[envoy.MetadataOwn].GetStructValue().GetFields()
			if hit := own[envoy.KeyPrefillCached]; own[envoy.KeySplit].GetStringValue() != string(c.why) || own[envoy.KeyPrefill].GetStringValue() != prefillAddr || (hit == nil) != (got.Hit == nil) || int(hit.GetNumberValue()) != c.counts {
				t.Errorf("access logs get %v", own)
			}
			if got.Hit != nil {
				p := <-counted
				if want := (Prefilled{prefillAddr, p.Decision, p.ID, 50_000, got.Predicted, got.Predicted, 9, 4}); p != want || p.Decision == 0 {
					t.Errorf("compared: %+v, want %+v", p, want)
				}
			} else if len(counted) > 0 {
				t.Errorf("compared: %+v without a count", <-counted)
			}
			if n := b.router.metrics.bodies.Used(); n != 0 {
				t.Errorf("%d bytes of bodies are still counted", n)
			}
		})
	}
}

// TestLegsEndWithTheirRequests: a client that leaves ends the leg, and the charges.
func TestLegsEndWithTheirRequests(t *testing.T) {
	legs := &fakeLegs{hold: true, got: make(chan prefill.Leg, 1)}
	b, s := apartBench(t, SplitOptions{Transport: TransportPull, MaxWait: time.Minute, Legs: legs})
	ctx, cancel := context.WithCancel(patient(t.Context()))
	ask(t, ctx, s, headers(buffered, "POST", chatPath, false), 1)
	<-legs.got
	cancel()
	for s.crowd.size() > 0 {
		time.Sleep(time.Millisecond)
	}
	if n := b.router.metrics.bodies.Used(); n != 0 {
		t.Errorf("%d bytes of bodies are still counted", n)
	}
}

// TestWhoIsNotSplit: an Envoy that does not wait, body modes that do not fail open, requests
// without a hint, forms that have no single KV cache.
func TestWhoIsNotSplit(t *testing.T) {
	legs := &fakeLegs{got: make(chan prefill.Leg, 1)}
	pull := SplitOptions{Transport: TransportPull, MaxWait: time.Minute, Legs: legs}
	for name, c := range map[string]struct {
		ctx   context.Context
		mode  *request
		trial Trial
		split SplitOptions
	}{
		"off":                 {patient(t.Context()), headers(buffered, "POST", chatPath, false), Trial{}, SplitOptions{}},
		"Envoy does not wait": {t.Context(), headers(buffered, "POST", chatPath, false), Trial{}, pull},
		"for no such body":    {metadata.AppendToOutgoingContext(t.Context(), envoy.KeyWait, "60000", envoy.KeySplitBody, "10"), headers(buffered, "POST", chatPath, false), Trial{}, pull},
		"nonsense":            {metadata.AppendToOutgoingContext(t.Context(), envoy.KeyWait, "-5", envoy.KeySplitBody, "x"), headers(buffered, "POST", chatPath, false), Trial{}, pull},
		"partial":             {patient(t.Context()), headers(partial, "POST", chatPath, false), Trial{}, pull},
		"without hint":        {patient(t.Context()), headers(buffered, "POST", chatPath, false), Trial{Shadow: true}, pull},
	} {
		b, s := apartBench(t, c.split)
		s.Set(ServerOptions{Split: c.split, Trial: c.trial})
		ask(t, c.ctx, s, c.mode, 1)
		if got := b.last().Split; got.Prefill != "" || len(legs.got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for form, want := range map[string]decision.SplitReason{
		`"n":1`: decision.SplitDone, `"n":2`: decision.SplitOff, `"kv_transfer_params":null`: decision.SplitOwnParams, `"prompt_logprobs":0`: decision.SplitOff,
		`"background":false`: decision.SplitDone, `"background":true`: decision.SplitOff, `"background":1`: decision.SplitOff,
	} {
		b, _ := apartBench(t, SplitOptions{})
		d := b.router.Route(t.Context(), &Query{Route: 1, MaySplit: true, Body: []byte(chat[:len(chat)-1] + "," + form + "}")})
		if got := b.last().Split.Reason; got != want || (d.Split != nil) != (want == decision.SplitDone) {
			t.Errorf("%s: %q, want %q", form, got, want)
		}
	}
}

// TestSidecarsGetTheHeader: mode header waits for nothing, in any body mode.
func TestSidecarsGetTheHeader(t *testing.T) {
	for _, mode := range []*request{headers(buffered, "POST", chatPath, false), headers(partial, "POST", chatPath, false)} {
		_, s := apartBench(t, SplitOptions{Transport: TransportHeader})
		out := ask(t, t.Context(), s, mode, 1)
		found := false
		for _, h := range out[0].Response.(*extprocv3.ProcessingResponse_RequestBody).RequestBody.GetResponse().GetHeaderMutation().GetSetHeaders() {
			found = found || h.Header.Key == envoy.HeaderPrefiller && string(h.Header.RawValue) == prefillAddr
		}
		if !found || destination(out) != decodeAddr {
			t.Errorf("answer %v", out[0])
		}
	}
	full := headers(buffered, "POST", chatPath, false)
	for of := full.GetRequestHeaders().Headers; len(of.Headers) < mostHeaders.fields; {
		of.Headers = append(of.Headers, &corev3.HeaderValue{Key: "x"})
	}
	b, s := apartBench(t, SplitOptions{Transport: TransportHeader})
	out := ask(t, t.Context(), s, full, 1)
	if of := b.last().Split; of.Reason == decision.SplitDone {
		t.Errorf("without room for the header: %+v, answer %v", of, out)
	}
}
