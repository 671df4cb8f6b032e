package filter

import (
	"fmt"
	"math"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

// TestTheShareIsDrawnAlike by every router of every release: the places of values are
// part of the interface.
func TestTheShareIsDrawnAlike(t *testing.T) {
	for value, want := range map[string]float64{"a": 0.347211814157627, "5f1c1d5e-9a31-4f27-8e2b-0d5ad2a2b8a4": 0.822168499582026} {
		if got := fraction(value); math.Abs(got-want) > 1e-14 {
			t.Errorf("%q is at %.15f, want %.15f", value, got, want)
		}
	}
	const values = 20_000
	for _, share := range []float64{1, 10, 50, 99} {
		small, large, in := Trial{Share: share}, Trial{Share: share + 0.5}, 0
		for i := range values {
			r := &trialRequest{id: fmt.Sprintf("%08x-0000", i)}
			if small.withheld(r) == "" {
				in++
				if large.withheld(r) != "" {
					t.Fatalf("request %s is in a share of %v percent and not in a larger one", r.id, share)
				}
			}
		}
		p := share / 100
		if sigma := math.Sqrt(values * p * (1 - p)); math.Abs(float64(in)-values*p) > 5*sigma {
			t.Errorf("%d of %d requests are in a share of %v percent", in, values, share)
		}
	}
}

// TestTrialReadsHeaders: which requests get no hint, and why.
func TestTrialReadsHeaders(t *testing.T) {
	const low, high = "a", "5f1c1d5e-9a31-4f27-8e2b-0d5ad2a2b8a4"
	if fraction(low) >= 0.5 || fraction(high) < 0.5 {
		t.Fatal("the values of this test are on one side")
	}
	type header = [2]string
	for _, tc := range []struct {
		trial   Trial
		id      string
		headers []header
		want    decision.Withheld
	}{
		{Trial{}, high, nil, ""},
		{Trial{Share: 100}, high, nil, ""},
		{Trial{Share: 100}, "", nil, ""},
		{Trial{Shadow: true, Share: 100}, low, nil, decision.WithheldShadow},
		{Trial{Share: 50}, low, nil, ""},
		{Trial{Share: 50}, high, nil, decision.WithheldShare},
		{Trial{Share: 50}, "", nil, decision.WithheldShare},
		{Trial{Share: 50, ShareBy: "x-user"}, high, []header{{"x-user", low}}, ""},
		{Trial{Share: 50, ShareBy: "x-user"}, low, []header{{"x-user", high}}, decision.WithheldShare},
		{Trial{Share: 50, ShareBy: "x-user"}, low, []header{{"x-user", high}, {"x-user", low}}, decision.WithheldShare},
		{Trial{Share: 50, ShareBy: "x-user"}, high, []header{{"x-other", low}}, decision.WithheldShare},
		{Trial{Share: 50, ShareBy: "x-tenant"}, low, nil, decision.WithheldShare}, // headers has "blue", and the router another use for it
		{Trial{OptOut: "x-off"}, low, []header{{"x-off", "1"}}, decision.WithheldOptedOut},
		{Trial{OptOut: "x-off"}, low, []header{{"x-off", "true"}}, decision.WithheldOptedOut},
		{Trial{OptOut: "x-off"}, low, []header{{"x-off", "false"}}, ""},
		{Trial{OptOut: "x-off"}, low, []header{{"x-off", "0"}}, ""},
		{Trial{OptOut: "x-off"}, low, []header{{"x-off", ""}}, ""},
		{Trial{OptOut: "x-off", Shadow: true}, low, []header{{"x-off", "1"}}, decision.WithheldOptedOut},
		{Trial{}, low, []header{{"x-off", "1"}}, ""},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{TenantHeader: "x-tenant", Trial: tc.trial}).stream(buffered, new(hint))
		m := headers(buffered, "POST", chatPath, false)
		h := m.GetRequestHeaders().Headers
		for _, v := range h.Headers {
			if v.Key == "x-request-id" {
				v.RawValue = []byte(tc.id)
			}
		}
		for _, v := range tc.headers {
			h.Headers = append(h.Headers, &corev3.HeaderValue{Key: v[0], RawValue: []byte(v[1])})
		}
		st.step(t.Context(), m, nil)
		if st.q.Withheld != tc.want || st.q.Tenant != "blue" {
			t.Errorf("%+v, id %q, headers %q: withheld %q of tenant %q, want %q", tc.trial, tc.id, tc.headers, st.q.Withheld, st.q.Tenant, tc.want)
		}
	}
}

// TestWithheldHints: in each body mode the answers are those to a request without a hint
// but for the metadata, the record has the hint, and the counters have the decision.
func TestWithheldHints(t *testing.T) {
	for _, tc := range []struct {
		name string
		send []*request
		want string
		of   int // the answer with the metadata
	}{
		{"buffered", []*request{headers(buffered, "POST", chatPath, false), body(chat, true)}, "headers | body", 1},
		{"partial", []*request{headers(partial, "POST", chatPath, false), body(chat, true)}, "headers | body", 1},
		{"duplex", []*request{headers(duplex, "POST", chatPath, false), body(chat, true)}, " | headers,body(57 end)", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, fakeTokens{n: 100}, replica(1))
			b.holds(replica(1).Addr, 0, 3)
			st := NewServer(b.router, ServerOptions{Trial: Trial{Shadow: true}}).stream(buffered, new(hint))
			var all []*response
			got := ""
			for i, m := range tc.send {
				out := st.step(t.Context(), m, nil)
				all = append(all, out...)
				if i > 0 {
					got += " | "
				}
				got += describeAll(out)
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			md := all[tc.of].GetDynamicMetadata().GetFields()
			own := md[envoy.MetadataOwn].GetStructValue().GetFields()
			if md[envoy.MetadataLB] != nil || own["reason"].GetStringValue() != "warm" || own["withheld"].GetStringValue() != "shadow" || own["predicted_tokens"].GetNumberValue() != 48 {
				t.Errorf("metadata %v", md)
			}
			rec := b.last()
			if rec.Withheld != decision.WithheldShadow || rec.Chosen != replica(1).Addr || rec.Predicted != 48 || rec.Reason != decision.ReasonWarm {
				t.Errorf("record %+v", rec)
			}
			m := b.router.metrics
			if read(t, m.withheld.WithLabelValues("shadow", "warm")) != 1 || read(t, m.models.Of("m").reasons["warm"]) != 1 || m.Predicted(replica(1).Addr) != 0 {
				t.Errorf("withheld %v, warm %v, predicted there %d", read(t, m.withheld.WithLabelValues("shadow", "warm")), read(t, m.models.Of("m").reasons["warm"]), m.Predicted(replica(1).Addr))
			}
			b.router.Tried(&st.d, "", "10.0.0.9:1", 200) // the hint was not followed because there was none
			if read(t, m.elsewhere) != 0 {
				t.Error("it counts as served elsewhere")
			}
			st.close()
			b.idle(t)
		})
	}
}

// TestTrialsDoNotRefuse: a request that a trial leaves to Envoy is not refused either,
// one that opted out is.
func TestTrialsDoNotRefuse(t *testing.T) {
	o := NewServer(nil, ServerOptions{Picker: true}).o.Load()
	for withheld, want := range map[decision.Withheld]bool{
		"": true, decision.WithheldOptedOut: true, decision.WithheldShadow: false, decision.WithheldShare: false,
	} {
		if _, refused := o.refusal(decision.ReasonSaturated, withheld); refused != want {
			t.Errorf("withheld %q: refused %v", withheld, refused)
		}
	}
}

// read returns a counter's value.
func read(t *testing.T, c prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	must.Do(t, c.Write(&m))
	return m.GetCounter().GetValue()
}
