package hostile

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// realModel starts a site whose replicas report a real tokenizer and chat template, with
// a context of 131,072 tokens. They answer no /render: the router computes every
// feature in process, unconfirmed.
func realModel(t *testing.T, config string) *site { t.Helper(); return modelOf(t, 131_072, config) }

// modelOf is realModel with another context, in tokens.
func modelOf(t *testing.T, context int, config string) *site {
	t.Helper()
	const blocks = 8200 // enough for hellos of any context
	model := must.Get(testenv.TinyModel(t.TempDir(), "qwen3"))(t)
	s := open(t, setup{
		replicas: 2,
		sim: vllmsim.Options{Root: model, Blocks: blocks, BlockSize: (context + blocks - 2) / (blocks - 1), MaxModelLen: context, PrefillRate: -1, DecodeRate: -1,
			Front: refuseLarge},
		config: config + "tokens: {trust: [chat, completions, tools, parts, kwargs]}\n",
	})
	s.await("token ids computed in process", func() bool {
		a, err := s.post(t.Context(), "/v1/chat/completions", []byte(hello))
		return err == nil && a.status == http.StatusOK && s.metrics()[`warmroute_token_source_total{source="in_process"}`] > 0
	})
	return s
}

// withoutRender hides a replica's routes that return token ids.
func withoutRender(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/render") || r.URL.Path == "/tokenize" {
			http.NotFound(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

// hello is an ordinary small request.
const hello = `{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":"Hello, who are you?"}]}`

// picture is a chat with an image of n bytes: an ordinary request of that size, which the
// router reads and does not compute itself.
func picture(n int) []byte {
	return fmt.Appendf(nil, `{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},`+
		`{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}]}`, strings.Repeat("iVBORw0K", n/8))
}

// usage is the router's use of CPU and memory for some requests.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes of resident memory beyond those before
}

// measure sends large bodies all at once and waits until the router has ended the work on
// them. The reason of each must be as wanted; "" is any.
func (s *site) measure(reason string, bodies ...[]byte) usage {
	s.t.Helper()
	s.resetPeak()
	cpu, resident := s.cpu(), s.resident()
	var wg sync.WaitGroup
	for _, body := range bodies {
		wg.Go(func() {
			got, err := s.post(s.t.Context(), "/v1/chat/completions", body)
			if err != nil || got.status != http.StatusRequestEntityTooLarge || reason != "" && got.reason != reason {
				s.t.Errorf("%d bytes: %+v, %v, want the reason %q", len(body), got, err, reason)
			}
		})
	}
	wg.Wait()
	s.idle()
	return usage{s.cpu() - cpu, s.peak() - resident}
}

// idle waits until the router follows no request.
func (s *site) idle() {
	s.t.Helper()
	s.await("the end of all requests", func() bool { return s.metrics()["warmroute_streams"] == 0 })
}

// refuseLarge has replicas refuse bodies above a megabyte unread: that they cost the replica
// something is not tested here.
func refuseLarge(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 1<<20 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		withoutRender(api).ServeHTTP(w, r)
	})
}

// TestRepeatedFields: a body that is one field again and again costs no more than a
// picture, also where its clients leave.
func TestRepeatedFields(t *testing.T) {
	s := realModel(t, "")
	repeated := func(n int) []byte {
		return []byte(`{"model":"sim",` + strings.Repeat(`"messages":[],`, n/len(`"messages":[],`)) + `"a":1}`)
	}
	s.measure("", picture(2_000_000)) // memory that is used again
	for _, n := range []int{1_100_000, 2_000_000} {
		var attacks, pictures [][]byte
		for range 5 {
			attacks, pictures = append(attacks, repeated(n)), append(pictures, picture(n))
		}
		usual, attack := s.measure("", pictures...), s.measure("repeated_field", attacks...)
		t.Logf("5 of %d bytes: %v, pictures %v", n, attack.cpu, usual.cpu)
		if attack.cpu > 2*usual.cpu+tick {
			t.Errorf("5 of %d bytes take %v of CPU, pictures of that size %v", n, attack.cpu, usual.cpu)
		}
	}
	usual, attack := s.leave(picture(38_000_000/6)), s.leave(repeated(38_000_000/6))
	t.Logf("38 MB that are left: %v, pictures %v", attack, usual)
	if attack > 2*usual+tick {
		t.Errorf("38 MB of clients that leave take %v of CPU, pictures of that size %v", attack, usual)
	}
}

// tick is the resolution of CPU times.
const tick = 20 * time.Millisecond

// leave sends a body six times, whose clients go when the router has begun with all of them
// or answered, and returns the CPU time until the router has ended the work.
func (s *site) leave(body []byte) time.Duration {
	s.t.Helper()
	cpu, before := s.cpu(), s.decisions()
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() { _, _ = s.post(ctx, "/v1/chat/completions", body) })
	}
	s.await("six requests", func() bool {
		return int(s.metrics()["warmroute_streams"])+s.decisions()-before >= 6
	})
	cancel()
	wg.Wait()
	s.idle()
	return s.cpu() - cpu
}

// decisions is how many requests the router has decided.
func (s *site) decisions() (n int) {
	s.t.Helper()
	for _, count := range s.reasons() {
		n += count
	}
	return n
}
