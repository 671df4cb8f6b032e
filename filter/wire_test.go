package filter

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/extprocwire"
	"warmroute/render/testkit/must"
)

// everything is a decision with every value that access logs may print.
func everything() decision.Decision {
	some := policy.Stretch{Tokens: 1000, Credit: 1, Token: 5e-6}
	return decision.Decision{
		Reason: decision.ReasonWarm, SplitReason: decision.SplitLocalIdle, Choice: decision.Choice{
			Chosen: "10.0.0.1:8000", Withheld: decision.WithheldShare, Predicted: 1000, Match: policy.Match{policy.CPU: some, policy.Storage: some, policy.Shared: some},
		},
		Model: "m", Tokens: 5000, Reported: 1000, Seq: 7, Usage: "detected",
	}
}

// TestLoadsByPlace: access logs get the tokens below the GPU where they lie, and their
// price; nothing for a replica without any.
func TestLoadsByPlace(t *testing.T) {
	own := func(m policy.Match) *structpb.Value {
		d := decision.Decision{Model: "m", Choice: decision.Choice{Match: m}}
		return new(answerMetadata).of(&d).GetFields()[envoy.MetadataOwn].GetStructValue().GetFields()[envoy.KeyLoads]
	}
	got := own(policy.Match{policy.CPU: {Tokens: 2000, Credit: 1, Token: 5e-6}, policy.Shared: {Tokens: 500, Credit: 1, Token: 1e-5}}).GetStructValue().AsMap()
	if want := map[string]any{"cpu": 2000.0, "cpu_ms": 10.0, "shared": 500.0, "shared_ms": 5.0}; !maps.Equal(got, want) {
		t.Errorf("loads %v, want %v", got, want)
	}
	if got := own(policy.Match{}); got != nil {
		t.Errorf("loads %v of a replica that loads nothing", got)
	}
}

// TestAnswersAreAsProtobufWritesThem: the codec writes the filter's answers as
// the library does.
func TestAnswersAreAsProtobufWritesThem(t *testing.T) {
	var usual []*response
	for _, d := range []decision.Decision{
		{Choice: decision.Choice{Chosen: "10.0.0.1:8000"}}, {Choice: decision.Choice{Chosen: "10.0.0.1:8000,10.0.0.2:8000"}, Rank: "3"},
		{Choice: decision.Choice{Chosen: strings.Repeat("10.0.0.1:8000,", 40)}}, {}, everything(),
	} {
		usual = append(usual, new(hint).ofHeaders(&d), new(hint).ofBody(&d))
	}
	usual = append(usual, reasonHeader(decision.ReasonWarm.ForClients()), plainRequestHeaders, plainRequestBody, plainRequestTrailers,
		plainResponseHeaders, plainResponseBody, plainResponseTrailers)
	for _, size := range []int{0, 1, 62000} {
		body := bytes.Repeat([]byte("x"), size)
		usual = append(usual, chunk(body, true, true), chunk(body, false, false))
	}
	named := decision.Decision{Choice: decision.Choice{Chosen: "a:1"}}
	rare := []*response{immediate(503, decision.ReasonNotReady), bodyHint(&named, []byte("{}"), new(hint)), bodyHint(&decision.Decision{}, []byte("{}"), new(hint))}
	codec := extprocwire.NewCodec()
	for _, r := range append(usual, rare...) {
		got := must.Get(codec.Marshal(r))(t)
		var back response
		if err := proto.Unmarshal(got.Materialize(), &back); err != nil || !proto.Equal(&back, r) {
			t.Errorf("%v: came back as %v, %v", r, &back, err)
		}
	}
}
