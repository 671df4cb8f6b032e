package render_test

import (
	"errors"
	"testing"

	"warmroute/render"
	"warmroute/render/testkit/chattest"
)

// TestMistralOfRequestsOfOtherModels: every request has ids, an objection
// or a refusal; one without messages is left to a replica.
func TestMistralOfRequestsOfOtherModels(t *testing.T) {
	r := server(t, chattest.MistralFolder(t, 3, true), render.Flags{}, "0.32.0", nil)
	answered := 0
	for _, c := range chattest.GenerateCoded(1, 2000, "m", "</s>", "[INST]") {
		if _, err := r.Tokenize(c.Route.String(), []byte(c.Body)); err == nil {
			answered++
		}
	}
	if answered < 100 {
		t.Errorf("only %d of the requests have ids", answered)
	}
	for route, body := range map[string]string{
		"/v1/responses": `{"model":"m","input":[]}`,
		"/v1/messages":  `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"redacted_thinking","data":"x"}]}]}`,
	} {
		var refusal *render.Refusal
		if _, err := r.Tokenize(route, []byte(body)); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", route, err)
		}
	}
}

// TestMistralGolden holds ids to those of vLLM with mistral-common.
func TestMistralGolden(t *testing.T) {
	for _, c := range []struct {
		name          string
		version       int
		sentencepiece bool
	}{
		{"mistral_spm_v3", 3, true}, {"mistral_spm_v7", 7, true}, {"mistral_tekken_v3", 3, false}, {"mistral_tekken_v7", 7, false},
		{"mistral_tekken_v11", 11, false}, {"mistral_tekken_v13", 13, false}, {"mistral_tekken_v15", 15, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := server(t, chattest.MistralFolder(t, c.version, c.sentencepiece), render.Flags{}, render.CodedVersion, nil)
			bad := 0
			for i, v := range readCoded(t, c.name) {
				if why := differs(t, r, v); why != "" && bad < 8 {
					bad++
					t.Errorf("%d: %s: %s\n%s", i+2, v.Route, why, v.Request)
				}
			}
		})
	}
}
