package filter

import (
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
)

// TestAnswersNameTheModel for Envoy's routes exactly where the router knows it, and then
// with a mutation of headers, without which Envoy keeps the route it has chosen.
func TestAnswersNameTheModel(t *testing.T) {
	h := new(hint) // the answers of one stream are built in the same memory
	for name, d := range map[string]decision.Decision{
		"hint":       {Model: "m", Choice: decision.Choice{Chosen: "10.0.0.1:8000"}, Rank: "1", Reason: decision.ReasonWarm},
		"withheld":   {Model: "m", Reason: decision.ReasonWarm, Choice: decision.Choice{Withheld: decision.WithheldShadow}},
		"no hint":    {Model: "m", Reason: decision.ReasonNoTokens},
		"any":        {Choice: decision.Choice{Chosen: "10.0.0.1:8000"}, Reason: decision.ReasonUnknownModel},
		"not judged": {Reason: decision.ReasonBusy},
	} {
		body, headers, whole := h.ofBody(&d), new(hint).ofHeaders(&d), bodyHint(&d, []byte("{}"), new(hint))
		for kind, r := range map[string]*response{"body": body, "headers": headers, "trailers": whole} {
			got := r.GetDynamicMetadata().GetFields()[envoy.MetadataBody].GetStructValue().GetFields()[envoy.KeyModel].GetStringValue()
			common := r.GetRequestHeaders().GetResponse()
			if common == nil {
				common = r.GetRequestBody().GetResponse()
			}
			if got != d.Model || common.GetClearRouteCache() || d.Model != "" && common.GetHeaderMutation() == nil {
				t.Errorf("%s, %s: model %q, %v", name, kind, got, common)
			}
			if n := len(common.GetHeaderMutation().GetSetHeaders()); n > 0 && d.Chosen == "" {
				t.Errorf("%s, %s: %d headers are set", name, kind, n)
			}
		}
	}
}
