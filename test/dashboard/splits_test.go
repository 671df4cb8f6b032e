package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"warmroute/lab/stage"

	"github.com/chromedp/chromedp"
)

// split is a decision's record of its prefill and decode, with more fields.
func split(reason string, more object) object {
	s := object{
		"reason": reason, "decode": "10.0.0.2:8000", "prefill": "10.0.0.1:8000", "decode_cached_tokens": 800, "predicted_prefill_cached_tokens": 64, "predicted_moved_tokens": 9200,
		"local":  object{"queue": 2, "prefill": 0.3, "decoding": 0.1, "later": 0.9, "harm": 0, "total": 3.3},
		"remote": object{"queue": 0, "prefill": 0.35, "handover": 0.17, "decoding": 0.12, "later": 1.05, "harm": 0.01, "total": 1.7},
	}
	for k, v := range more {
		s[k] = v
	}
	return s
}

// shows returns the visible cells of a selection's rows.
func shows(t *testing.T, b *browser, rows string) [][]string {
	t.Helper()
	return eval[[][]string](t, b, fmt.Sprintf(`[...document.querySelectorAll(%q)].map((tr) => [...(tr.cells || [])].filter((c) => c.checkVisibility()).map((c) => c.textContent))`, rows))
}

// testSplits: a fleet without roles and splits has nothing of them on its page; with them it has
// roles, connectors, sums, and both prices of a decision.
func testSplits(t *testing.T, f *front) {
	decision := func(seq int, s object) object {
		d := object{"seq": seq, "at": now, "reason": "cold", "model": "m", "chosen": "10.0.0.2:8000", "prompt_tokens": 10000, "predicted_cached_tokens": 800,
			"candidates": []object{{"replica": "10.0.0.2:8000", "state": object{}, "score": object{"verdict": "ranked"}}}}
		if s != nil {
			d["split"] = s
		}
		return d
	}
	f.say("/debug/explain", object{"decisions": []object{decision(1, nil)}})
	b := f.visit(t)
	b.do(t, chromedp.Click(`#decisions tr[data-seq="1"] td`, chromedp.ByQuery), chromedp.WaitVisible(".box", chromedp.ByQuery))
	if got := eval[int](t, b, `[...document.querySelectorAll(".apart, .below, .desk, #splits, .prices, .legs")].filter((e) => e.checkVisibility() && (e.textContent.trim() || e.id)).length`); got != 0 {
		t.Errorf("%d elements about splits on the page of a plain fleet", got)
	}
	head := strings.Join(shows(t, b, "#fleet thead tr")[0], "|")
	if head != "Replica|Model|State|KV events|Blocks|Cache used|In flight|Prefill queued|Waiting|Predicted|Shortfall" {
		t.Errorf("a plain fleet has %s", head)
	}

	nixl := func(role string, parts object) object {
		return object{"role": role, "transfer": object{"connector": "NixlConnector", "from": "metrics"}, "ranks": []object{{"rank": 0, "split": parts}}}
	}
	f.say("/debug/replicas", object{"replicas": []object{
		replica("10.0.0.1:8000", "m", nixl("prefill", object{"under_way": 2, "computed": 40})), replica("10.0.0.2:8000", "m", nixl("decode", object{"answered": 40, "moved_tokens": 52_000})), replica("10.0.0.3:8000", "m", nil),
	}})
	h := samples(object{}, object{})
	for i, s := range h["samples"].([]object) {
		s["splits"] = object{"reasons": object{"split": 3 * i, "local_idle": 5, "prefill_failed": 1}, "moved_tokens": 9000, "prefill": object{"seconds": 2, "requests": 4}, "move": object{"seconds": 0.1, "requests": 2}}
	}
	f.say("/debug/history", h)
	hit := object{"prefill_cached_tokens": 48, "moved_tokens": 10000, "times": object{"prefill_answered_seconds": 0.4, "prefill_computed_seconds": 0.39, "moved_seconds": 0.15}}
	f.say("/debug/explain", object{"decisions": []object{decision(3, split("split", hit)), decision(2, split("prefill_failed", nil))}})
	b = f.visit(t)
	b.do(t, chromedp.WaitVisible("#splits", chromedp.ByQuery), chromedp.WaitVisible(`#decisions tr[data-seq="3"]`, chromedp.ByQuery))
	for selector, want := range map[string]string{
		"#splits-more":            "5 min, all models: 3 of 15 requests, 18.0 k tokens moved",
		"#split-reasons tbody tr": "split|3|20.0 %|another replica computed the prompt",
		"#split-phases tbody tr":  "Prefill|500 ms|8|events of the replica that computes: from the decision until the prompt is computed",
		"#fleet tbody tr":         "10.0.0.1:8000|m|ready|following|prefill|NixlConnector|computes 2, computed 40|0|0.0 %|0|0 ms|0|0|–",
		"#fleet tbody tr + tr":    "10.0.0.2:8000|m|ready|following|decode|NixlConnector|answered 40, 52.0 k tokens moved here|0|0.0 %|0|0 ms|0|0|–",
	} {
		got := b.text(t, selector)
		if cells := shows(t, b, selector); len(cells[0]) > 0 {
			got = strings.Join(cells[0], "|")
		}
		if got != want {
			t.Errorf("%s has %q, want %q", selector, got, want)
		}
	}
	rows := shows(t, b, "#decisions tbody tr")
	if done := rows[0]; done[3] != "10.0.0.1:8000 → 10.0.0.2:8000" || done[5] != "64" || done[6] != "48" {
		t.Errorf("the row of a split: %q", done)
	}
	if failed := rows[1]; failed[1] != "cold, prefill_failed" || failed[3] != "10.0.0.2:8000" || failed[5] != "800" {
		t.Errorf("the row of a prefill that failed: %q", failed)
	}
	b.do(t, chromedp.Click(`#decisions tr[data-seq="3"] td`, chromedp.ByQuery), chromedp.WaitVisible(".prices td", chromedp.ByQuery))
	if got, want := b.text(t, ".legs"), "Prefill and decode: split (another replica computed the prompt); 10.0.0.1:8000 computes, 10.0.0.2:8000 answers; 9,200 tokens to move of the prompt's 10,000; 48 of 64 predicted tokens were cached on 10.0.0.1:8000; prefill computed after 390 ms; answered after 400 ms; KV cache moved in 150 ms."; got != want {
		t.Errorf("legs %q", got)
	}
	prices := shows(t, b, ".prices tbody tr")
	if len(prices) != 2 || strings.Join(prices[0], "|") != "10.0.0.2:8000|800|2.00 s|300 ms|0 ms|100 ms|0.900|0.000|3.3000" || strings.Join(prices[1], "|") != "10.0.0.1:8000|64|0 ms|350 ms|170 ms|120 ms|1.050|0.010|1.7000" {
		t.Errorf("prices %q", prices)
	}
}

// testTiers: a replica with blocks below its GPU has them on the page, with what a token costs,
// and a decision says how many tokens of its prompt lie where.
func testTiers(t *testing.T, f *front) {
	ranks := []object{
		{"rank": 0, "blocks": 10, "below": object{"cpu_blocks": 1000, "storage_blocks": 7}, "loads": object{"cpu": object{"seconds_each_token": 5.2e-6, "tokens": 9000}}},
		{"rank": 1, "blocks": 10, "below": object{"cpu_blocks": 500}},
	}
	f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "m", object{"ranks": ranks}), replica("10.0.0.2:8000", "m", nil)}})
	match := append(onGPU(64, 1), object{"place": "cpu", "tokens": 2048, "credit": 1, "seconds_each_token": 5e-6}, object{"place": "shared", "tokens": 1024, "credit": 0.5, "seconds_each_token": 1e-5})
	f.say("/debug/explain", object{"decisions": []object{{
		"seq": 1, "at": now, "reason": "warm", "chosen": "10.0.0.1:8000", "match": match,
		"candidates": []object{{"replica": "10.0.0.1:8000", "state": object{"match": match}, "score": object{}}, {"replica": "10.0.0.2:8000", "state": object{}, "score": object{}}},
	}}})
	b := f.visit(t)
	b.do(t, chromedp.WaitVisible("#fleet .below", chromedp.ByQuery), chromedp.Click(`#decisions tr[data-seq="1"] td`, chromedp.ByQuery), chromedp.WaitVisible(".candidates .below", chromedp.ByQuery))
	fleet := shows(t, b, "#fleet tbody tr")
	if got := strings.Join(fleet[0][4:7], "|"); got != "20|CPU 1,500, storage 7|CPU 5.2 µs" || strings.Join(fleet[1][4:7], "|") != "0|–|–" {
		t.Errorf("the fleet: %q", fleet)
	}
	candidates := shows(t, b, ".candidates tbody tr")
	if candidates[0][3] != "CPU 2,048 (10 ms), shared 512 (5.12 ms)" || candidates[1][3] != "–" {
		t.Errorf("candidates: %q", candidates)
	}
	if got := b.text(t, ".legs"); got != "Loads 2,560 tokens from below its GPU, in 15 ms." {
		t.Errorf("%q", got)
	}
}

// testSessions: replicas whose requests may be held have the sessions at work there.
func testSessions(t *testing.T, f *front) {
	ranks := []object{
		{"rank": 0, "sessions": object{"live": 3, "context_tokens": 90_000, "cache_tokens": 100_000}},
		{"rank": 1, "sessions": object{"live": 2, "context_tokens": 30_000, "cache_tokens": 100_000}},
	}
	f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "m", object{"ranks": ranks}), replica("10.0.0.2:8000", "m", nil)}})
	b := f.visit(t)
	b.do(t, chromedp.WaitVisible("#fleet .desk", chromedp.ByQuery))
	fleet := shows(t, b, "#fleet tbody tr")
	if fleet[0][6] != "5 (60.0 %)" || fleet[1][6] != "–" {
		t.Errorf("the fleet: %q", fleet)
	}
}

// apart is a fleet of one replica that computes prompts for two others.
var apart = stage.Fleet{
	Replicas: 3, Blocks: 4096, BlockSize: 16, Model: "sim", PrefillRate: 8000, DecodeRate: 100, StepTokens: 2048, Connector: "NixlConnector", Roles: []string{"prefill"},
}

// byPrice has the router split requests wherever a prefill would delay a running answer much.
const byPrice = "prefill_decode: {mode: pull}\npolicy: {prefill_decode: {theta: 1000}}\n"

// occupy keeps the replicas that answer busy with long answers until the test ends.
func occupy(t *testing.T, front string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(end)
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				body := fmt.Sprintf(`{"model":"sim","max_tokens":2000,"stream":true,"messages":[{"role":"user","content":"story %d"}]}`, i)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, front+"/v1/chat/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := http.DefaultClient.Do(req)
				if err != nil {
					continue // the test has ended
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
		})
	}
}

// openSplit opens a decision with a long prompt that another replica has computed. It sends
// prompts from the number of on until one of the newest decisions is such.
func openSplit(t *testing.T, b *browser, front string, of int) {
	t.Helper()
	until(t, "a split has ended", func() bool {
		of++
		chat(t, front, long(of))
		return eval[bool](t, b, `(() => {
			const of = [...document.querySelectorAll("#decisions > tbody > tr:not(.detail)")].slice(0, 5).find(({ cells }) => cells[3].textContent.includes(" → ") && cells[4].textContent.includes(",") && cells[6].textContent !== "–");
			of?.cells[0].click();
			return !!of;
		})()`)
	})
	b.do(t, chromedp.WaitVisible(".prices tbody tr + tr", chromedp.ByQuery))
}

// long is a prompt that no replica has.
func long(i int) string {
	return strings.Repeat(fmt.Sprintf("traveller %d counts the stones, ", i), 400)
}
