package filter

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// largeChat is a chat of n bytes: many turns of text, or one image.
func largeChat(n int, image bool, salt int) []byte {
	var b strings.Builder
	b.Grow(n + 4096)
	b.WriteString(`{"model":"m","messages":[{"role":"system","content":"You are terse."}`)
	if image {
		fmt.Fprintf(&b, `,{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]}`, strings.Repeat("iVBORw0K", n/8))
	}
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `,{"role":%q,"content":"`, [2]string{"user", "assistant"}[i%2])
		for j := range 12 {
			fmt.Fprintf(&b, `The quick brown fox %d jumps over the lazy dog, said the expert; nobody disagreed with claim %d of %d.\n`, salt, j, i)
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// BenchmarkLargeBodies is a decision about a large body that no other was like,
// with ids computed in process, by phase. context is the model's, 0 = not known.
func BenchmarkLargeBodies(b *testing.B) {
	m, err := tokens.LoadFolder(b.Context(), "../.cache/models/qwen3", tokens.Flags{Transformers: "5.19.0"})
	if err != nil {
		b.Fatal(err)
	}
	salt := 0 // the model remembers the beginnings of prompts
	for _, most := range []int{131_072, 1 << 20, 0} {
		for _, size := range []int{1_000_000, 4_000_000, 8_000_000, 50_000_000} {
			for _, image := range []bool{false, true} {
				b.Run(fmt.Sprintf("MB=%d/image=%v/context=%d", size/1_000_000, image, most), func(b *testing.B) {
					l := tokens.NewLocal(tokens.LocalOptions{TrustUnverified: openai.FeatureChat, SampleEvery: -1,
						Endpoints: func(string) []tokens.Endpoint { return []tokens.Endpoint{{Version: "0.32.0", MaxLen: most}} }})
					if err := l.Load("m", m); err != nil {
						b.Fatal(err)
					}
					l.CheckAll(b.Context())
					decideLarge(b, l, func() []byte { salt++; return largeChat(size, image, salt) })
				})
			}
		}
	}
}

func decideLarge(b *testing.B, l *tokens.Local, body func() []byte) {
	bench := newBench(b, &tokens.Chooser{Local: l}, replica(1), replica(2))
	for b.Loop() {
		b.StopTimer()
		q := Query{ID: "id-1", Route: openai.Chat, Body: body()}
		b.StartTimer()
		d := bench.router.Route(context.Background(), &q)
		if d.Reservation == nil {
			b.Fatalf("decision %+v", d)
		}
		d.Reservation.Release()
	}
	for p := range phases {
		var m dto.Metric
		must.Do(b, bench.router.metrics.phases[p].(prometheus.Metric).Write(&m))
		b.ReportMetric(m.GetHistogram().GetSampleSum()*1e3/float64(b.N), "ms-"+p.String())
	}
}
