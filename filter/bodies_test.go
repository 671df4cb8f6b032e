package filter

import (
	"context"
	"runtime"
	"strings"
	"testing"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"warmroute/internal/decision"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// TestBodiesBeyondTheLimitPass: while large bodies fill the limit, a large body passes at
// once, without a hint and unchanged, and a small one has its hint.
func TestBodiesBeyondTheLimitPass(t *testing.T) {
	half := strings.Repeat(" ", tokens.SmallBody/2+1)
	for name, tt := range map[string]struct {
		mode   modev3.ProcessingMode_BodySendMode
		chunks []string
		want   decision.Reason
	}{
		"buffered, large":        {buffered, []string{chat + half + half}, decision.ReasonBusy},
		"buffered, small":        {buffered, []string{chat + half}, decision.ReasonCold},
		"partial, large":         {partial, []string{chat + half + half}, decision.ReasonBusy},
		"duplex, large":          {duplex, []string{chat, half, half, " ", " "}, decision.ReasonBusy},
		"duplex, small":          {duplex, []string{chat, half}, decision.ReasonCold},
		"duplex, large at once":  {duplex, []string{chat + half + half}, decision.ReasonBusy},
		"duplex, last too large": {duplex, []string{chat + half, half}, decision.ReasonBusy},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, fakeTokens{n: 100}, replica(1))
			s := NewServer(b.router, ServerOptions{MaxBodies: SmallShare + tokens.SmallBody})
			used := &b.router.metrics.bodies
			used.Take(tokens.SmallBody, tokens.SmallBody) // what large bodies may have at all
			st := s.stream(tt.mode, new(hint))
			out := st.step(t.Context(), headers(tt.mode, "POST", chatPath, false), nil)
			sent, back := "", ""
			for i, chunk := range tt.chunks {
				sent += chunk
				out = st.step(t.Context(), body(chunk, i == len(tt.chunks)-1), out)
			}
			for _, r := range out {
				back += string(r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse().GetBody())
			}
			if st.d.Reason != tt.want {
				t.Errorf("reason %q, want %q", st.d.Reason, tt.want)
			}
			if tt.mode == duplex && back != sent {
				t.Errorf("%d of %d bytes came back", len(back), len(sent))
			}
			if st.close(); used.Used() != tokens.SmallBody {
				t.Errorf("%d bytes are still counted", used.Used()-tokens.SmallBody)
			}
		})
	}
}

// A body in several pieces counts twice, for it is copied into one.
func TestAJoinedBodyCounts(t *testing.T) {
	pieces := []string{chat, strings.Repeat(" ", tokens.SmallBody)}
	size := int64(len(pieces[0]) + len(pieces[1]))
	for _, tt := range []struct {
		limit      int64
		byTrailers bool // they end the body
		want       decision.Reason
	}{
		{2 * size, false, decision.ReasonCold}, {2*size - 1, false, decision.ReasonBusy},
		{2 * size, true, decision.ReasonCold}, {2*size - 1, true, decision.ReasonBusy},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		s := NewServer(b.router, ServerOptions{MaxBodies: SmallShare + tt.limit})
		st := s.stream(duplex, new(hint))
		out := st.step(t.Context(), headers(duplex, "POST", chatPath, false), nil)
		for i, piece := range pieces {
			out = st.step(t.Context(), body(piece, i == len(pieces)-1 && !tt.byTrailers), out)
		}
		if tt.byTrailers {
			out = st.step(t.Context(), trailers(), out)
			if back := out[0].GetRequestHeaders().GetResponse().GetBodyMutation().GetBody(); string(back) != pieces[0]+pieces[1] {
				t.Errorf("%d of %d bytes came back", len(back), size)
			}
		}
		if st.d.Reason != tt.want || len(out) == 0 {
			t.Errorf("%+v: reason %q with %d answers, where the body has %d bytes", tt, st.d.Reason, len(out), size)
		}
		if st.close(); b.router.metrics.bodies.Used() != 0 {
			t.Error("bytes of a request that has ended still count")
		}
	}
}

// TestReadingTakesMemoryByTheByte: bodies of nothing but the smallest values end at the limit
// of memory for reading.
func TestReadingTakesMemoryByTheByte(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector takes memory")
	}
	const size, constant, factor = 4_000_000, 16 << 20, 8
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	for _, one := range []string{`{}`, `0`, `""`, `[[]]`, `{"a":{}}`, `{"role":"user","content":""}`} {
		text := []byte(`{"model":"m","messages":[` + strings.Repeat(one+",", size/(len(one)+1)) + one + `]}`)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := b.router.Route(context.Background(), &Query{Route: openai.Chat, Body: text})
		runtime.ReadMemStats(&after)
		if got := int64(after.TotalAlloc - before.TotalAlloc); got > constant+factor*int64(len(text)) {
			t.Errorf("%s: %d MB for %d MB, reason %q", one, got>>20, len(text)>>20, d.Reason)
		}
		if d.Chosen != "" {
			t.Errorf("%s: not refused", one)
		}
	}
}

// TestDroppedTexts: with DropTexts no message is in memory when its request has ended; without it
// the next turn gets those of the turn before.
func TestDroppedTexts(t *testing.T) {
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+strings.Repeat("word ", 100)+`"},`, 20) + `{"role":"user","content":"hi"}]}`)
	for _, drop := range []bool{false, true} {
		r := NewRouter(nil, nil, nil, nil, RouterOptions{DropTexts: drop})
		var first [2]any
		for i := range first {
			q := must.Get(r.bodies.Parse(openai.Chat, body))(t)
			messages, _, err := q.Values(nil, openai.FieldMessages)
			if err != nil {
				t.Fatal(err)
			}
			first[i] = messages.Items[0]
		}
		if kept := first[0] == first[1]; kept == drop {
			t.Errorf("drop %v: kept %v", drop, kept)
		}
	}
}
