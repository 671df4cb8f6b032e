//go:build vllm

package vllm

import (
	"strings"
	"testing"
	"time"
)

// usage: for every request so far whose answer has a usage, the router's record has the
// same number of cached tokens, by way of Envoy.
func (f *fixture) usage(t *testing.T) {
	if len(f.counted) == 0 {
		t.Fatal("no answer had a usage")
	}
	same := 0
	for id, want := range f.counted {
		rec := f.decision(t, id)
		for end := time.Now().Add(time.Minute); rec.Answered == nil && time.Now().Before(end); rec = f.decision(t, id) {
			time.Sleep(100 * time.Millisecond) // Envoy reports once a second
		}
		switch {
		case rec.Answered == nil || rec.ActualCached == nil:
			t.Errorf("%s: the answer says %d cached tokens, the record nothing", id, want)
		case *rec.ActualCached != want || rec.ActualPrompt != rec.Tokens && !strings.HasPrefix(rec.Source, "text"): // a text's tokens are an estimate
			t.Errorf("%s: the answer says %d cached tokens, the record %d, and %d tokens of %d", id, want, *rec.ActualCached, rec.ActualPrompt, rec.Tokens)
		default:
			same++
		}
	}
	t.Logf("%d of %d records equal the answers' usage", same, len(f.counted))
}
