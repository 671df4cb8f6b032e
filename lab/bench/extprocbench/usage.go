package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// usageCommand measures the cost to Envoy of reading the usage of answers: an Envoy without
// the filter, one with it whose requests do not ask for it, and one whose requests all do, in
// turn, before a no-op ext_proc server each.
func usageCommand(ctx context.Context, args []string) error {
	f := flagSet("usage")
	seconds := f.Float64("s", 1.5, "seconds of one measurement")
	rounds := f.Int("rounds", 4, "measurements of each, in turn")
	events := f.Int("events", 500, "events of a streamed answer, each sent alone")
	if err := f.Parse(args); err != nil {
		return err
	}
	t := turns{time.Duration(*seconds * float64(time.Second)), *rounds}
	return compareEnvoys(ctx, answering(*events), usageVariants, func(envoys [3]*testenv.Envoy) error {
		fmt.Printf("\n| answer | Envoy CPU-ms, no filter | not asked | asked | × not asked | × asked |\n|---|---|---|---|---|---|\n")
		const rest = `"model":"sim","messages":[{"role":"user","content":"a"}]}`
		for _, row := range []struct{ name, body string }{
			{"2 KB JSON", "{" + rest}, {fmt.Sprint(*events, " SSE events at once"), string(streams) + rest}, {fmt.Sprint(*events, " SSE events, each alone"), string(apart) + rest},
		} {
			send := func(e *testenv.Envoy, _ int) error { return post(ctx, e.URL+"/v1/chat/completions", []byte(row.body)) }
			if err := t.costRow(row.name, envoys, send); err != nil {
				return err
			}
		}
		return usageRead(envoys)
	})
}

// answering is an upstream whose answers have a usage: 2 KB of JSON, or so many events.
func answering(events int) http.Handler {
	const usage = `"usage":{"prompt_tokens":4000,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":3584}}`
	plain := fmt.Appendf(nil, `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"sim","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+usage+`}`,
		strings.Repeat("some words ", 160), 320, 4320)
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"sim","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")
	last := fmt.Appendf(nil, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"sim","choices":[],`+usage+"}\n\ndata: [DONE]\n\n", events, 4000+events)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !bytes.HasPrefix(body, streams) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(plain)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for range events {
			_, _ = w.Write(event)
			w.(http.Flusher).Flush()
			if bytes.HasPrefix(body, apart) {
				time.Sleep(pause)
			}
		}
		_, _ = w.Write(last)
	})
}

// streams begins the body of a request for a streamed answer, apart that of one whose events
// come with a pause between them, each in a packet of its own.
var streams, apart = []byte(`{"stream":true,`), []byte(`{"stream":true,"apart":true,`)

const pause = 200 * time.Microsecond

// usageVariants are the Envoys to compare.
func usageVariants(upstream string) (all [3]variant) {
	for i := range all {
		all[i].options = envoy.Options{Replicas: []string{upstream}, UsageShare: new(min(i, 1))}
	}
	all[2].noop = []string{"-usage", envoy.UsageDetected}
	return all
}

// usageRead checks that only the last Envoy has read usages.
func usageRead(envoys [3]*testenv.Envoy) error {
	for i, e := range envoys {
		var page bytes.Buffer
		if err := get(e.Admin+"/stats?usedonly&filter=ai_protocol_manager|token_usage", &page); err != nil {
			return err
		}
		if read := page.Len() > 0; read != (i == 2) {
			return fmt.Errorf("envoy %d: usages read %v: %s", i, read, page.String())
		}
	}
	return nil
}
