package tokens

import (
	"testing"

	"warmroute/internal/chat/chattest"
)

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
			model, err := LoadFolder(chattest.MistralFolder(t, c.version, c.sentencepiece), Flags{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := model.Requests("", nil)
			if err != nil {
				t.Fatal(err)
			}
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
