package filter

import (
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/render/openai"
)

// TestUsageIsAskedFor: the metadata of a hint asks Envoy to read the answer's usage, as
// the route requires, and carries what the comparison needs; each has its decision's number, by
// which the status of the answer is known.
func TestUsageIsAskedFor(t *testing.T) {
	for route, want := range map[string]string{"/v1/chat/completions": envoy.UsageDetected, "/v1/completions": envoy.UsageCompletions} {
		d := decision.Decision{Model: "m", Choice: decision.Choice{Chosen: "10.0.0.1:8000,10.0.0.2:8000", Predicted: 64}, Tokens: 100, Reported: 48, Seq: 7}
		asked := ""
		r := &Router{o: RouterOptions{Usage: func(seq uint64, replica string, _ bool) bool { asked = replica; return seq == 7 }}}
		q, _ := openai.RouteOf("POST", route)
		d.Usage = r.usage(q, 1, &d)
		own := new(answerMetadata).of(&d).GetFields()[envoy.MetadataOwn].GetStructValue().GetFields()
		if asked != "10.0.0.1:8000" || own[envoy.KeyUsage].GetStringValue() != want || own[envoy.KeyReported].GetNumberValue() != 48 || own[envoy.KeyDecision].GetNumberValue() != 7 {
			t.Errorf("%s: asked about %q, metadata %v", route, asked, own)
		}
		if got := r.usage(q, 2, &d); got != "" {
			t.Errorf("%s: asked %q about several prompts", route, got)
		}
		r.o.Usage = func(uint64, string, bool) bool { return false }
		d.Usage = r.usage(q, 1, &d)
		if own := new(answerMetadata).of(&d).GetFields()[envoy.MetadataOwn].GetStructValue().GetFields(); own[envoy.KeyUsage] != nil || own[envoy.KeyReported] != nil || own[envoy.KeyDecision].GetNumberValue() != 7 {
			t.Errorf("%s: metadata %v where nothing is asked for", route, own)
		}
	}
}
