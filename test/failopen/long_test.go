package failopen

import (
	"net/http"
	"strconv"
	"sync"
	"testing"

	"warmroute/envoy"
)

// TestLongAnswersLive: without other traffic, an answer of 8 s ends in every
// mode: neither pings nor health checks end its ext_proc stream.
func TestLongAnswersLive(t *testing.T) {
	const seconds, perSecond = 8, 200 // tokens
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.FullDuplex} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := start(t, options{mode: mode})
			var wg sync.WaitGroup
			for _, stream := range []bool{false, true} {
				wg.Go(func() {
					body := `{"model":"sim","max_tokens":` + strconv.Itoa(seconds*perSecond) + `,"stream":` + strconv.FormatBool(stream) + `,"prompt":[1,2,3,4]}`
					if got := send(&http.Client{Timeout: 10 * patience}, s.envoy.URL, body); got.cause != "" || got.cut {
						t.Errorf("streamed %v: status %q, cut %v after %v", stream, got.cause, got.cut, got.took)
					}
				})
			}
			wg.Wait()
		})
	}
}
