package outcome

import (
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	aiv3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

// record is Envoy's record of a usage; cached below 0 = none.
func record(t testing.TB, status aiv3.TokenUsage_ExtractionStatus, prompt uint64, cached int64) *anypb.Any {
	t.Helper()
	m := &aiv3.TokenUsage{ExtractionStatus: status, InputTokens: wrapperspb.UInt64(prompt), OutputTokens: wrapperspb.UInt64(7)}
	if cached >= 0 {
		m.InputTokenDetails = &aiv3.InputTokenDetails{CachedTokens: wrapperspb.UInt64(uint64(cached))}
	}
	return must.Get(anypb.New(m))(t)
}

// entry is the access log's entry of a request with a hint.
func entry(t testing.TB, own map[string]any, lb map[string]any, usage *anypb.Any) *logv3.HTTPAccessLogEntry {
	t.Helper()
	fields := func(m map[string]any) *structpb.Struct {
		return must.Get(structpb.NewStruct(m))(t)
	}
	e := &logv3.HTTPAccessLogEntry{
		CommonProperties: &logv3.AccessLogCommon{
			Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.MetadataOwn: fields(own), envoy.MetadataLB: fields(lb)}},
			UpstreamRemoteAddress: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8000}}}},
			TimeToFirstUpstreamRxByte: durationpb.New(30 * time.Millisecond), TimeToLastDownstreamTxByte: durationpb.New(time.Second),
		},
		Request:  &logv3.HTTPRequestProperties{RequestId: "id"},
		Response: &logv3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200)},
	}
	if usage != nil {
		e.CommonProperties.Metadata.TypedFilterMetadata = map[string]*anypb.Any{envoy.MetadataUsage: usage}
	}
	return e
}

func TestAnswerOfAnEntry(t *testing.T) {
	own := map[string]any{"model": "m", "reason": "warm", "prompt_tokens": 100, "predicted_tokens": 64, "usage": "detected", "reported_tokens": 48, "decision": 1<<24 + 7, "rank": "0"}
	lb := map[string]any{envoy.HeaderDestination: "10.0.0.1:8000,10.0.0.2:8000"}
	got := answerOf(entry(t, own, lb, record(t, aiv3.TokenUsage_COMPLETE, 101, 80)))
	want := Answer{
		RequestID: "id", Decision: 1<<24 + 7, Model: "m", Rank: "0", Hint: "10.0.0.1:8000,10.0.0.2:8000", Replica: "10.0.0.1:8000", Status: 200,
		Prediction: Prediction{Prompt: 100, Predicted: 64, Reported: 48}, Times: Times{FirstByte: 30 * time.Millisecond, Duration: time.Second},
		Usage: Usage{State: UsageComplete, Prompt: 101, Cached: 80, Output: 7},
	}
	if got != want {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if !got.Followed() || got.First() != "10.0.0.1:8000" {
		t.Error("the hint counts as not followed")
	}
	e := entry(t, map[string]any{"model": "m", "reason": "warm", "withheld": "share"}, nil, nil)
	e.CommonProperties.CustomTags = map[string]string{envoy.TagFirstByte: "40000"}
	if got := answerOf(e); got.Withheld != decision.WithheldShare || got.Hint != "" || got.FirstByte != 40*time.Millisecond {
		t.Errorf("%+v", got)
	}
	for _, tag := range []string{"-", "", "-1", "9223372036854775807", "x"} { // Envoy writes - for a time that did not come
		e := entry(t, map[string]any{"withheld": "a text of a stranger"}, nil, nil)
		e.CommonProperties.CustomTags = map[string]string{envoy.TagFirstByte: tag}
		if got := answerOf(e); got.Withheld != "" || got.FirstByte != 30*time.Millisecond {
			t.Errorf("tag %q: %+v", tag, got)
		}
	}
	e = entry(t, nil, nil, nil)
	e.Request.RequestId = strings.Repeat("long", 10_000)
	if got := answerOf(e); got.RequestID != decision.RequestID(e.Request.RequestId) || len(got.RequestID) > 1000 {
		t.Errorf("the id has %d bytes", len(got.RequestID))
	}
	e = entry(t, map[string]any{"prompt_tokens": -5, "predicted_tokens": 1e300, "decision": "x"}, nil, nil)
	e.Request.RequestHeaders = map[string]string{envoy.HeaderDestination: "10.0.0.9:8000"}
	if got := answerOf(e); got.Prompt != 0 || got.Predicted != 0 || got.Decision != 0 || got.Hint != "10.0.0.9:8000" || got.Followed() {
		t.Errorf("%+v", got)
	}
}

// TestWhoServedAndWhoFailed: Envoy's last upstream has served where an answer came from it, and has
// failed by its own status or connection; what Envoy or the client ends shows nothing of it.
func TestWhoServedAndWhoFailed(t *testing.T) {
	const one = "10.0.0.1:8000"
	for name, c := range map[string]struct {
		status       uint32
		begun        bool
		flags        *logv3.ResponseFlags
		served, fail string
	}{
		"answered":                    {200, true, nil, one, ""},
		"refused by the replica":      {400, true, nil, one, ""},
		"its own error":               {500, true, nil, one, one},
		"what it cannot do":           {501, true, nil, one, ""},
		"its own error, after a try":  {503, true, &logv3.ResponseFlags{UpstreamRetryLimitExceeded: true}, one, one},
		"not reached":                 {503, false, &logv3.ResponseFlags{UpstreamConnectionFailure: true}, "", one},
		"closed before an answer":     {503, false, &logv3.ResponseFlags{UpstreamConnectionTermination: true}, "", one},
		"reset before an answer":      {503, false, &logv3.ResponseFlags{UpstreamRemoteReset: true}, "", one},
		"no HTTP":                     {502, false, &logv3.ResponseFlags{UpstreamProtocolError: true}, "", one},
		"broken off":                  {200, true, &logv3.ResponseFlags{UpstreamConnectionTermination: true}, one, one},
		"too many requests in Envoy":  {503, false, &logv3.ResponseFlags{UpstreamOverflow: true}, "", ""},
		"Envoy's patience":            {504, false, &logv3.ResponseFlags{UpstreamRequestTimeout: true}, "", ""},
		"the client left":             {0, false, &logv3.ResponseFlags{DownstreamConnectionTermination: true}, "", ""},
		"the client left in between":  {200, true, &logv3.ResponseFlags{DownstreamConnectionTermination: true}, one, ""},
		"the client reset its stream": {0, false, &logv3.ResponseFlags{DownstreamRemoteReset: true}, "", ""},
		"refused by another filter":   {500, false, nil, "", ""},
	} {
		e := entry(t, nil, map[string]any{envoy.HeaderDestination: one}, nil)
		e.Response.ResponseCode.Value, e.CommonProperties.ResponseFlags = c.status, c.flags
		if !c.begun {
			e.CommonProperties.TimeToFirstUpstreamRxByte = nil
		}
		a := answerOf(e)
		if a.Replica != c.served || a.Failed != c.fail || a.Followed() != (c.served != "") {
			t.Errorf("%s: served by %q, failed %q", name, a.Replica, a.Failed)
		}
	}
}

// TestClientsThatGaveUp: how long after its request a client left without an answer.
func TestClientsThatGaveUp(t *testing.T) {
	for name, c := range map[string]struct {
		status uint32
		begun  bool
		flags  *logv3.ResponseFlags
		want   time.Duration
	}{
		"left":                 {0, false, &logv3.ResponseFlags{DownstreamConnectionTermination: true}, 5 * time.Millisecond},
		"reset":                {0, false, &logv3.ResponseFlags{DownstreamRemoteReset: true}, 5 * time.Millisecond},
		"left after an answer": {200, true, &logv3.ResponseFlags{DownstreamConnectionTermination: true}, 0},
		"answered":             {200, true, nil, 0},
		"not reached":          {503, false, &logv3.ResponseFlags{UpstreamConnectionFailure: true}, 0},
		"no answer, no flag":   {0, false, nil, 0},
	} {
		e := entry(t, nil, nil, nil)
		p := e.CommonProperties
		e.Response.ResponseCode.Value, p.ResponseFlags = c.status, c.flags
		p.TimeToLastRxByte, p.Duration = durationpb.New(2*time.Millisecond), durationpb.New(7*time.Millisecond)
		if !c.begun {
			p.TimeToFirstUpstreamRxByte = nil
		}
		if a := answerOf(e); a.GaveUp != c.want {
			t.Errorf("%s: after %v, want %v", name, a.GaveUp, c.want)
		}
	}
}

// TestRetries: the first of the named replicas has failed where Envoy tried it, and not where its
// patience with one try may have ended, or where it chose the second at once.
func TestRetries(t *testing.T) {
	s := New(prometheus.NewRegistry(), func(string) string { return "base" }, func() {}, func(*Answer) {})
	for name, c := range map[string]struct {
		attempts   uint32
		last, sent time.Duration // of the request's body to Envoy, of the last try
		hint       string
		want       bool
		tag        string // by a configuration in which no try has a time limit
	}{
		"refused":                    {2, time.Millisecond, 20 * time.Millisecond, "10.0.0.2:8000,10.0.0.1:8000", true, ""},
		"not reached within 1 s":     {2, time.Millisecond, 1100 * time.Millisecond, "10.0.0.2:8000,10.0.0.1:8000", true, ""},
		"refused, after a long body": {2, time.Minute, time.Minute + 20*time.Millisecond, "10.0.0.2:8000,10.0.0.1:8000", true, ""},
		"slow":                       {2, time.Millisecond, 5 * time.Second, "10.0.0.2:8000,10.0.0.1:8000", false, ""},
		"broken late":                {2, time.Millisecond, 5 * time.Second, "10.0.0.2:8000,10.0.0.1:8000", true, "5030000"},
		"broken late, by an example": {2, time.Millisecond, 5 * time.Second, "10.0.0.2:8000,10.0.0.1:8000", true, "-"},
		"not tried":                  {1, time.Millisecond, 2 * time.Millisecond, "10.0.0.2:8000,10.0.0.1:8000", false, ""},
		"the first one":              {2, time.Millisecond, 20 * time.Millisecond, "10.0.0.1:8000,10.0.0.2:8000", false, ""},
	} {
		for _, served := range []string{"", "10.0.0.1:8000"} {
			lb := map[string]any{envoy.HeaderDestination: c.hint}
			if served != "" {
				lb[envoy.MetadataServed] = served
			}
			e := entry(t, nil, lb, nil)
			e.CommonProperties.UpstreamRequestAttemptCount = c.attempts
			if c.tag != "" {
				e.CommonProperties.CustomTags = map[string]string{envoy.TagFirstByte: c.tag}
			}
			e.CommonProperties.TimeToLastRxByte, e.CommonProperties.TimeToFirstUpstreamTxByte = durationpb.New(c.last), durationpb.New(c.sent)
			a := answerOf(e)
			if s.take(&a); a.PassedOver != c.want {
				t.Errorf("%s, told %q: passed over %t", name, served, a.PassedOver)
			}
		}
	}
}

// TestCachedOfASplit: the cached tokens of an answer whose prompt another replica has computed
// are those that this one has counted, and not known if it has counted none.
func TestCachedOfASplit(t *testing.T) {
	for name, c := range map[string]struct {
		split  string
		counts any // in the metadata
		want   Usage
		from   string
	}{
		"counted":     {"split", 16, Usage{State: UsageComplete, Prompt: 101, Cached: 16, Output: 7}, "10.0.0.9:8000"},
		"none cached": {"split", 0, Usage{State: UsageComplete, Prompt: 101, Output: 7}, "10.0.0.9:8000"},
		"not told":    {"split", nil, Usage{State: UsagePartial, Prompt: 101, Output: 7}, "10.0.0.9:8000"},
		"not split":   {"prefill_failed", nil, Usage{State: UsageComplete, Prompt: 101, Cached: 80, Output: 7}, ""},
	} {
		own := map[string]any{"usage": "detected", envoy.KeySplit: c.split, envoy.KeyPrefill: "10.0.0.9:8000"}
		if c.counts != nil {
			own[envoy.KeyPrefillCached] = c.counts
		}
		a := answerOf(entry(t, own, nil, record(t, aiv3.TokenUsage_COMPLETE, 101, 80)))
		if a.Usage != c.want || a.Prefill != c.from {
			t.Errorf("%s: %+v by %q, want %+v by %q", name, a.Usage, a.Prefill, c.want, c.from)
		}
	}
}

func TestStatesOfUsage(t *testing.T) {
	const complete = aiv3.TokenUsage_COMPLETE
	other := must.Get(anypb.New(wrapperspb.String("x")))(t)
	empty := must.Get(anypb.New(&aiv3.TokenUsage{ExtractionStatus: complete}))(t)
	for name, c := range map[string]struct {
		record *anypb.Any
		asked  bool
		want   Usage
	}{
		"complete":           {record(t, complete, 100, 64), true, Usage{State: UsageComplete, Prompt: 100, Cached: 64, Output: 7}},
		"nothing cached":     {record(t, complete, 100, 0), true, Usage{State: UsageComplete, Prompt: 100, Cached: 0, Output: 7}},
		"not asked for":      {record(t, complete, 100, 64), false, Usage{State: UsageComplete, Prompt: 100, Cached: 64, Output: 7}},
		"no details":         {record(t, aiv3.TokenUsage_PARTIAL, 100, -1), true, Usage{State: UsagePartial, Prompt: 100, Cached: 0, Output: 7}},
		"failed":             {record(t, aiv3.TokenUsage_FAILED, 100, 64), true, Usage{State: UsageFailed}},
		"more than all":      {record(t, complete, 100, 101), true, Usage{State: UsageFailed}},
		"beyond every count": {record(t, complete, 1<<63, 0), true, Usage{State: UsageFailed}},
		"no prompt":          {empty, true, Usage{State: UsageFailed}},
		"another message":    {other, true, Usage{State: UsageFailed}},
		"no record":          {nil, true, Usage{State: UsageNone}},
		"neither":            {nil, false, Usage{}},
	} {
		if got := usageOf(c.record, c.asked); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestServedIsCountedOnce: an answer whose replica the router knows from the response's
// headers is counted as a miss there, not again.
func TestServedIsCountedOnce(t *testing.T) {
	missed, taken := 0, 0
	s := New(prometheus.NewRegistry(), func(string) string { return "base" }, func() { missed++ }, func(*Answer) { taken++ })
	hint := map[string]any{envoy.HeaderDestination: "10.0.0.2:8000"}
	for range 2 {
		a := answerOf(entry(t, map[string]any{"usage": "detected"}, hint, nil))
		s.take(&a)
		hint[envoy.MetadataServed] = "10.0.0.1:8000"
	}
	if missed != 1 || taken != 2 {
		t.Errorf("%d misses, %d answers taken", missed, taken)
	}
	if n := testutil.ToFloat64(s.usages.WithLabelValues("none")); n != 2 {
		t.Errorf("%v answers without usage", n)
	}
	if n := testutil.ToFloat64(s.outcomes.WithLabelValues("base", elsewhere)); n != 2 {
		t.Errorf("%v served elsewhere", n)
	}
}

// FuzzAnswerOf: entries of any content give numbers within their bounds.
func FuzzAnswerOf(f *testing.F) {
	own := map[string]any{"model": "m", "prompt_tokens": 100, "usage": "detected", "decision": 7}
	e := must.Get(proto.Marshal(entry(f, own, map[string]any{envoy.HeaderDestination: "a,b"}, record(f, aiv3.TokenUsage_COMPLETE, 101, 80))))(f)
	f.Add(e)
	f.Fuzz(func(t *testing.T, b []byte) {
		var e logv3.HTTPAccessLogEntry
		if proto.Unmarshal(b, &e) != nil {
			return
		}
		a := answerOf(&e)
		u := a.Usage
		if u.Cached < 0 || u.Cached > u.Prompt || u.Prompt > mostTokens || a.Prompt < 0 || a.Predicted < 0 || a.Reported < 0 || a.FirstByte < 0 || a.Duration < 0 {
			t.Errorf("%+v", a)
		}
	})
}
