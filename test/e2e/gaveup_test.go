package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestClientsThatGiveUpLeaveNothing: the prompt of a client that leaves before its answer could begin
// is not expected in the cache of a replica without events, as Envoy's access log tells.
func TestClientsThatGiveUpLeaveNothing(t *testing.T) {
	t.Parallel()
	came := make(chan struct{}, 1)
	hang := func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path == chatPath {
			_, _ = io.Copy(io.Discard, r.Body)
			came <- struct{}{}
			<-r.Context().Done()
			return
		}
		pass.ServeHTTP(w, r)
	}
	st := start(t, setup{replicas: 1, sim: fast(), replica: func(int) string { return "    no_events: true\n" },
		front: func(sim string) string { return inFront(t, sim, hang).addr }})
	body := chatBody(t, []message{{"user", strings.Repeat("a long story that nobody waits for ", 4000)}}, 4)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { <-came; cancel() }()
	req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, st.envoy.URL+chatPath, bytes.NewReader(body)))(t)
	if _, err := http.DefaultClient.Do(req); err == nil {
		t.Fatal("an answer has come")
	}
	st.until("the prompt is forgotten", func() bool {
		said := testenv.Post(t, "http://"+st.admin+"/debug/explain?path="+chatPath, body).Body
		return bytes.Contains(said, []byte(`"predicted_cached_tokens":0`))
	})
}
