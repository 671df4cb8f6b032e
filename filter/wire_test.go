package filter

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"warmroute/internal/decision"
	"warmroute/internal/extprocwire"
)

// TestAnswersAreAsProtobufWritesThem: the codec writes the filter's answers as
// the library does.
func TestAnswersAreAsProtobufWritesThem(t *testing.T) {
	var usual []*response
	for _, d := range []decision.Decision{
		{Destination: "10.0.0.1:8000"}, {Destination: "10.0.0.1:8000,10.0.0.2:8000", Rank: "3"},
		{Destination: strings.Repeat("10.0.0.1:8000,", 40)}, {},
	} {
		usual = append(usual, new(hint).ofHeaders(&d), new(hint).ofBody(&d))
	}
	usual = append(usual, reasonHeader(decision.ReasonWarm.ForClients()), plainRequestHeaders, plainRequestBody, plainRequestTrailers,
		plainResponseHeaders, plainResponseBody, plainResponseTrailers)
	for _, size := range []int{0, 1, 62000} {
		body := bytes.Repeat([]byte("x"), size)
		usual = append(usual, chunk(body, true, true), chunk(body, false, false))
	}
	named := decision.Decision{Destination: "a:1"}
	rare := []*response{immediate(503, decision.ReasonNotReady), bodyHint(&named, []byte("{}"), false), bodyHint(&decision.Decision{}, []byte("{}"), false)}
	codec := extprocwire.NewCodec()
	for _, r := range append(usual, rare...) {
		got, err := codec.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var back response
		if err := proto.Unmarshal(got.Materialize(), &back); err != nil || !proto.Equal(&back, r) {
			t.Errorf("%v: came back as %v, %v", r, &back, err)
		}
	}
}
