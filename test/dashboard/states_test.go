package dashboard

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmroute/lab/stage"
	"warmroute/render/testkit/must"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// now is the time of the router that front plays, an hour east of Greenwich.
var now = time.Date(2026, 11, 23, 18, 0, 2, 0, time.FixedZone("", 3600))

// front is a router whose pages are the test's: those that say has, and the real router's
// at admin for the others.
type front struct {
	addr string

	mu   sync.Mutex
	says map[string]any // by path; a string is sent as it is, a func is called to answer
}

func inFront(t *testing.T, admin string) *front {
	t.Helper()
	f := &front{says: map[string]any{}}
	behind := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: admin})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		answer := f.says[r.URL.Path]
		f.mu.Unlock()
		switch a := answer.(type) {
		case nil:
			r.Host = admin
			behind.ServeHTTP(w, r)
		case string:
			fmt.Fprint(w, a)
		case func(http.ResponseWriter, *http.Request):
			a(w, r)
		default:
			_ = json.NewEncoder(w).Encode(a)
		}
	}))
	t.Cleanup(s.Close)
	f.addr = s.Listener.Addr().String()
	return f
}

func (f *front) say(path string, answer any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.says[path] = answer
}

type object = map[string]any

// samples makes a history that ends now: each model's point at each sample, five seconds
// apart, nil for a sample that was not taken.
func samples(points ...object) object {
	var all []object
	for i, models := range points {
		if models != nil {
			all = append(all, object{"number": i + 1, "at": now.Add(time.Duration(i-len(points)) * 5 * time.Second).Format(time.RFC3339Nano), "models": models})
		}
	}
	return object{"every_seconds": 5, "now": now.Format(time.RFC3339Nano), "since": now.Add(-time.Hour).Format(time.RFC3339Nano), "first_token_bounds": []float64{0.1, 0.5, 1},
		"classes": object{"warm": "warm", "cold": "cold", "unknown_model": "failed"}, "totals": object{}, "samples": all}
}

func replica(address, model string, more object) object {
	r := object{"address": address, "base_model": model, "models": []string{model}, "ready": true, "synced": true, "kv_events": "following", "ranks": []object{{"rank": 0}}, "cached_tokens": object{"predicted": 0}}
	for k, v := range more {
		r[k] = v
	}
	return r
}

// TestStates: what the page shows of states that a router reports.
func TestStates(t *testing.T) {
	_, admin := stack(t, "")
	for name, test := range map[string]func(*testing.T, *front){
		"sums": testSums, "gaps": testGaps, "hover": testHover, "header": testHeader, "strangers": testStrangers, "decisions": testDecisions, "contrast": testContrast,
		"splits": testSplits, "tiers": testTiers, "sessions": testSessions, "axes": testAxes, "shadow": testShadow, "served": testServed, "heads": testHeads,
	} {
		t.Run(name, func(t *testing.T) {
			f := inFront(t, admin)
			f.say("/debug/explain", object{"decisions": []object{}})
			f.say("/readyz", "ready\n")
			f.say("/debug/history", samples(object{}))
			f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "m", nil)}})
			test(t, f)
		})
	}
}

// visit opens the page and waits until it has read everything once.
func (f *front) visit(t *testing.T) *browser {
	t.Helper()
	b := open(t)
	b.do(t, chromedp.EmulateViewport(1280, 1100), chromedp.Navigate("http://"+f.addr+"/dashboard/"), chromedp.WaitVisible("body[data-updates]", chromedp.ByQuery))
	return b
}

// testSums: tiles are sums divided once. The mean of the models' rates is
// 19.8 % here.
func testSums(t *testing.T, f *front) {
	point := func(hit, prompt int, tokens ...int) object {
		return object{"in_flight": 1, "hit_tokens": hit, "prompt_tokens": prompt, "first_tokens": tokens, "decisions": object{"warm": 3, "cold": 1}, "prefill": object{"seconds": float64(hit) / 1000, "requests": 10}}
	}
	h := samples(
		object{"a": point(4270, 12200, 90, 10), "b": point(46, 1000)},
		object{"a": object{"in_flight": 1}, "b": object{"in_flight": 1}, "": object{"decisions": object{"failed": 1}}},
	)
	h["totals"] = object{"a": object{"hit_tokens": 6_500_000, "prompt_tokens": 2e7, "saved_prefill_seconds": 7200}, "b": object{"hit_tokens": 46, "prompt_tokens": 1100, "saved_prefill_seconds": 60}}
	f.say("/debug/history", h)
	f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "a", nil), replica("10.0.0.2:8000", "b", nil)}})
	b := f.visit(t)
	// p50 is within the first of the buckets, p90 at its end.
	for tile, want := range map[string]string{
		"#tile-hit": "32.7 %", "#tile-hit-more": "of 13.2 k prompt tokens", "#tile-ttft": "56 ms", "#tile-ttft-more": "p90 100 ms, p99 460 ms", "#tile-flight": "2",
		"#tile-hinted": "88.9 %", "#tile-hinted-more": "of 9 requests", "#tile-saved": "6.5 M", "#tile-saved-more": "≈ 2 h 1 min of prefill, since 17:00", "#spent-prefill": "216 ms", "#spent-prefill-share": "100.0 %", "#spent-queue": "–",
	} {
		if got := b.text(t, tile); got != want {
			t.Errorf("%s has %q, want %q", tile, got, want)
		}
	}
	b.do(t, chromedp.SetValue("#model", "b", chromedp.ByQuery), chromedp.Evaluate(`document.getElementById("model").dispatchEvent(new Event("change"))`, nil))
	if got := b.text(t, "#tile-hit"); got != "4.6 %" {
		t.Errorf("model b: %q", got)
	}
	if got := b.text(t, "#fleet tbody"); !strings.Contains(got, "10.0.0.2") || strings.Contains(got, "10.0.0.1") {
		t.Errorf("model b: %q", got)
	}
}

// testGaps: no line goes across time without requests or without samples, and a value alone
// between two gaps is a point.
func testGaps(t *testing.T, f *front) {
	var points []object
	for i := range 108 { // nine minutes: three with requests, three without; of the last three, one without samples
		point := object{"in_flight": 0}
		if i < 36 || i >= 84 || i/3 == 18 {
			point["hit_tokens"], point["prompt_tokens"] = 50, 100
		}
		points = append(points, object{"m": point})
		if i >= 72 && i < 84 {
			points[i] = nil
		}
	}
	f.say("/debug/history", samples(points...))
	b := f.visit(t)
	// ink counts the drawn pixels of the line at a time, in minutes before now.
	const ink = `(minutes) => {
		const u = document.getElementById("chart-hit").plot, ratio = u.ctx.canvas.width / u.width, [line] = getComputedStyle(document.documentElement).getPropertyValue("--good").match(/[0-9a-f]{6}/);
		const x = Math.round(u.valToPos(%d - 60 * minutes, "x", true)), pixels = u.ctx.getImageData(x - 2, 0, 5, u.ctx.canvas.height).data, want = [0, 2, 4].map((i) => parseInt(line.slice(i, i + 2), 16));
		let n = 0;
		for (let i = 0; i < pixels.length; i += 4) if (want.every((c, k) => Math.abs(pixels[i + k] - c) < 40) && pixels[i + 3] > 128) n++;
		return n;
	}`
	for minutes, want := range map[float64]bool{8: true, 7: true, 5.25: false, 4.4: true, 3.5: false, 2.5: false, 1: true} {
		n := eval[int](t, b, fmt.Sprintf("(%s)(%v)", fmt.Sprintf(ink, now.Unix()), minutes))
		if (n > 0) != want {
			t.Errorf("%v minutes ago: %d pixels of the line, want any: %v", minutes, n, want)
		}
	}
}

// testAxes: every chart has one time axis, from the first sample on; each tick says its own
// value, and no two say the same.
func testAxes(t *testing.T, f *front) {
	var points []object
	for range 7 { // half a minute
		points = append(points, object{"m": object{"in_flight": 1, "hit_tokens": 1, "prompt_tokens": 1000, "first_tokens": []int{3, 1}, "decisions": object{"warm": 1}}, "": object{}})
	}
	f.say("/debug/history", samples(points...))
	b := f.visit(t)
	first := float64(now.Add(-35 * time.Second).Unix())
	for _, chart := range []string{"hit", "ttft", "classes", "flight"} {
		at := `document.getElementById("chart-` + chart + `").plot`
		if x := eval[[]float64](t, b, "[...Object.values("+at+".scales.x)].length ? ["+at+".scales.x.min, "+at+".scales.x.max] : []"); len(x) != 2 || x[0] != first || x[1] < first+600 || x[1] > first+610 {
			t.Errorf("%s: the time axis is from %v, want from %v on", chart, x, first)
		}
		labels := eval[[]string](t, b, at+".axes[1]._values.filter((v) => v !== null && v !== '').map(String)")
		splits := eval[[]float64](t, b, at+".axes[1]._splits")
		seen := map[string]bool{}
		for i, label := range labels {
			number, unit, _ := strings.Cut(label, " ")
			v, err := strconv.ParseFloat(strings.ReplaceAll(number, ",", ""), 64)
			if err != nil || seen[label] || len(splits) != len(labels) {
				t.Fatalf("%s: ticks %q at %v", chart, labels, splits)
			}
			seen[label] = true
			if scale := map[string]float64{"%": 100, "ms": 1000, "s": 1, "": 1}[unit]; math.Abs(v-scale*splits[i]) > 1e-9*math.Max(1, v) {
				t.Errorf("%s: %q stands at %v", chart, label, splits[i])
			}
		}
		if times := eval[[]string](t, b, at+".axes[0]._values.filter((v) => v).map(String)"); len(times) < 2 || len(slices.Compact(slices.Sorted(slices.Values(times)))) != len(times) {
			t.Errorf("%s: times %q", chart, times)
		}
	}
}

// testShadow: without hints, requests in flight are those that the replicas report.
func testShadow(t *testing.T, f *front) {
	f.say("/debug/trial", object{"mode": "shadow", "share": 100, "since": now.Format(time.RFC3339)})
	f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "m", object{"ranks": []object{{"rank": 0, "in_flight": 0, "running_reported": 3, "waiting_reported": 2}}})}})
	b := f.visit(t)
	until(t, "what the replica reports", func() bool { return shows(t, b, "#fleet tbody tr")[0][6] == "5" })
}

// onGPU is a match of tokens on the GPU.
func onGPU(tokens int, credit float64) []object {
	return []object{{"place": "gpu", "tokens": tokens, "source": "reported", "credit": credit}}
}

// testServed: a prediction stands beside the answer of the replica that it is for. Whoever
// served instead has its own prediction, or none.
func testServed(t *testing.T, f *front) {
	candidates := []object{{"replica": "10.0.0.1:8000", "state": object{"match": onGPU(900, 1)}, "score": object{}},
		{"replica": "10.0.0.2:8000", "state": object{"match": onGPU(320, 0.9375)}, "score": object{}}}
	row := func(seq int, more object) object {
		d := object{"seq": seq, "at": now, "reason": "warm", "model": "m", "chosen": "10.0.0.1:8000", "prompt_tokens": 1000, "predicted_cached_tokens": 900, "actual_cached_tokens": 300, "candidates": candidates}
		for k, v := range more {
			d[k] = v
		}
		return d
	}
	f.say("/debug/explain", object{"decisions": []object{
		row(5, object{"served_by": "10.0.0.1:8000"}), row(4, object{"withheld": "shadow", "served_by": "10.0.0.2:8000"}), row(3, object{"served_by": "10.0.0.2:8000"}),
		row(2, object{"withheld": "share", "served_by": "10.0.0.3:8000"}), row(1, object{"withheld": "share", "served_by": "10.0.0.1:8000"}), row(0, object{"withheld": "share"}),
	}})
	b := f.visit(t)
	until(t, "six decisions", func() bool { return len(shows(t, b, "#decisions tbody tr")) == 6 })
	for i, want := range []string{"900 300", "300 300", "300 300", "– 300", "900 300", "– 300"} {
		if row := shows(t, b, "#decisions tbody tr")[i]; row[5]+" "+row[6] != want {
			t.Errorf("row %d: %s and %s, want %s", i+1, row[5], row[6], want)
		}
	}
}

// testHeads: every head of a table says on hover what is below it.
func testHeads(t *testing.T, f *front) {
	b := f.visit(t)
	const silent = `[document, document.getElementById("detail").content].flatMap((d) => [...d.querySelectorAll("th")]).filter((h) => h.textContent && !h.closest(".uplot") && !(h.title.length > 8)).map((h) => h.textContent)`
	if got := eval[[]string](t, b, silent); len(got) > 0 {
		t.Errorf("heads that explain nothing: %q", got)
	}
}

// testHover: the values under the cursor are shown in all charts, at the router's time. Every
// other time is the router's, too, whatever the browser's zone is.
func testHover(t *testing.T, f *front) {
	var points []object
	for i := range 120 {
		points = append(points, object{"m": object{"in_flight": i / 3, "hit_tokens": 20, "prompt_tokens": 100}})
	}
	f.say("/debug/history", samples(points...))
	f.say("/debug/explain", object{"decisions": []object{{"seq": 1, "at": now.UTC().Format(time.RFC3339), "reason": "warm"}}})
	b := open(t)
	b.do(t, emulation.SetTimezoneOverride("Asia/Tokyo"), chromedp.EmulateViewport(1280, 1100), chromedp.Navigate("http://"+f.addr+"/dashboard/"), chromedp.WaitVisible("#decisions tbody tr", chromedp.ByQuery))
	const legend = `[...document.querySelectorAll("#chart-flight .u-value, #chart-hit .u-value")].map((e) => e.textContent).join()`
	if got := eval[string](t, b, legend); got != "17:59:52,20.0 %,17:59:52,39" {
		t.Errorf("without the cursor: %s", got)
	}
	at := eval[[]float64](t, b, fmt.Sprintf(`(() => { const u = document.getElementById("chart-flight").plot, r = u.over.getBoundingClientRect(); r.y < innerHeight || scrollTo(0, 300);
		const now = u.over.getBoundingClientRect(); return [now.x + u.valToPos(%d - 309, "x"), now.y + 30]; })()`, now.Unix()))
	b.do(t, input.DispatchMouseEvent(input.MouseMoved, at[0], at[1]), input.DispatchMouseEvent(input.MouseMoved, at[0]+1, at[1]))
	until(t, "the values five minutes ago", func() bool {
		return eval[string](t, b, legend) == "17:54:52,20.0 %,17:54:52,19"
	})
	if clock, row := b.text(t, "#clock"), b.text(t, "#decisions tbody td"); !strings.HasPrefix(clock, "18:00:") || !strings.HasSuffix(clock, " UTC+01:00") || row != "18:00:02" {
		t.Errorf("the clock has %q, a decision %q", clock, row)
	}
}

// testHeader: the header says what is wrong, and nothing else.
func testHeader(t *testing.T, f *front) {
	dead := object{"ready": false, "why": "unreachable: connection refused: nothing listens at 10.0.0.2:8000"}
	b := f.visit(t)
	for _, c := range []struct {
		ready    string
		replicas []object
		want     string
	}{
		{"ready", []object{replica("a", "m", nil), replica("b", "n", nil)}, "ready"},
		{"ready", []object{replica("a", "m", nil), replica("b", "n", dead)}, "no replica of n is ready|1 of 2 replicas is not ready"},
		{"ready", []object{replica("a", "m", nil), replica("b", "m", object{"kv_events": "none"})}, "1 replica has no KV events"},
		{"ready", []object{replica("a", "m", object{"synced": false}), replica("b", "m", object{"kv_events": "paused"}), replica("c", "m", object{"kv_events": "connecting"})}, "1 replica's KV events are refused|1 replica's KV events are not connected|1 replica's KV events are behind"},
		{"ready", []object{replica("a", "m", object{"kv_events": "off"}), replica("b", "m", object{"kv_events": "sidecar", "synced": false})}, "ready"},
		{"ready", []object{replica("a", "m", object{"cached_tokens": object{"suspect": true}})}, "1 replica is suspect"},
		{"not ready: not every replica has been contacted yet", []object{replica("a", "m", dead), replica("b", "", dead)}, "not ready: not every replica has been contacted yet|no replica is ready|no replica of m is ready"},
	} {
		f.say("/debug/replicas", object{"replicas": c.replicas})
		f.say("/readyz", func(w http.ResponseWriter, _ *http.Request) {
			if c.ready != "ready" {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			fmt.Fprint(w, c.ready)
		})
		got := ""
		for end := time.Now().Add(30 * time.Second); got != c.want && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			got = eval[string](t, b, `[...document.querySelectorAll("#state span")].map((e) => e.textContent).join("|")`)
		}
		if got != c.want {
			t.Errorf("the header says %q, want %q", got, c.want)
		}
	}
	f.say("/debug/history", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	until(t, "an answer of 500", func() bool { return strings.Contains(b.text(t, "#state"), "the router answers 500 to /debug/history") })
}

// testStrangers: names and texts from replicas, clients and files are text, whatever they
// contain, and neither they nor their number make the page wide.
func testStrangers(t *testing.T, f *front) {
	evil := `<img src=x onerror="window.evil=1">` + strings.Repeat("W", 5000)
	dead := object{"ready": false, "name": evil, "why": "bad answer: " + evil, "version": evil}
	var replicas []object
	for i := range 300 {
		replicas = append(replicas, replica(fmt.Sprint("10.0.0.1:", i), evil+fmt.Sprint(i), nil))
	}
	replicas = append(replicas, replica("10.0.0.2:1", evil, dead))
	f.say("/debug/replicas", object{"replicas": replicas})
	f.say("/readyz", "ready\n"+strings.Repeat("note: "+evil+"\n", 50))
	f.say("/debug/history", samples(object{evil: object{"in_flight": 1, "decisions": object{"warm": 1}}}))
	f.say("/debug/trial", object{"mode": "route", "share": 50, "share_by": evil, "since": now, "groups": []object{{"model": evil, "group": "unhinted", "requests": 1}, {"model": evil, "group": "hinted", "requests": 1}}})
	d := object{"seq": 1, "at": now, "reason": "unknown_model", "id": evil, "asked_model": evil, "model": evil, "chosen": evil, "why": object{"text": evil, "do": evil}, "candidates": []object{{"replica": evil, "state": object{}, "score": object{"verdict": evil}, "why": object{"text": evil}}}}
	f.say("/debug/explain", object{"decisions": []object{d}})
	b := f.visit(t)
	b.do(t, chromedp.WaitVisible("#decisions tbody td", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector("#decisions tbody td").click()`, nil), chromedp.WaitVisible(".box", chromedp.ByQuery))
	for _, width := range []int64{1280, 400} {
		b.do(t, chromedp.EmulateViewport(width, 900))
		fits(t, b, width)
	}
	b.do(t, chromedp.EmulateViewport(1280, 900))
	if got := eval[int](t, b, `document.querySelector("#fleet").offsetWidth`); got > 1500 {
		t.Errorf("the table of the fleet is %d px wide", got)
	}
	if got := eval[int](t, b, `document.querySelectorAll("img, script:not([src])").length + (window.evil || 0)`); got != 0 {
		t.Error("a text became markup")
	}
	if rows, notes := eval[int](t, b, `document.querySelectorAll("#fleet tbody tr").length`), eval[int](t, b, `document.querySelectorAll("#notes li").length`); rows > 201 || notes > 11 {
		t.Errorf("%d replicas, %d notes", rows, notes)
	}
	if got := eval[int](t, b, `document.body.textContent.length`); got > 200_000 {
		t.Errorf("the page has %d characters", got)
	}
	if row := b.text(t, "#fleet tbody tr"); !strings.Contains(row, "bad answer: <img") {
		t.Errorf("the dead replica is not first: %.100q", row)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		t.Errorf("the browser complains: %.300q", b.problems)
	}
}

// testDecisions: only warm is green; details are below their row, and the table stands
// still while they are open.
func testDecisions(t *testing.T, f *front) {
	decision := func(seq int, reason string) object {
		return object{"seq": seq, "at": now, "reason": reason, "model": "m", "chosen": "10.0.0.1:8000", "prompt_tokens": seq,
			"candidates": []object{{"replica": "10.0.0.1:8000", "state": object{"match": onGPU(12, 1)}, "score": object{"verdict": "ok"}}}}
	}
	all := []object{decision(4, "warm"), decision(3, "cold"), decision(2, "unknown_model"), decision(1, "warm")}
	f.say("/debug/explain", object{"decisions": all})
	b := f.visit(t)
	b.do(t, chromedp.WaitVisible("#decisions tbody tr:nth-child(4)", chromedp.ByQuery))
	colours := eval[[]string](t, b, `["#decisions tr:nth-child(1) td:nth-child(2)", "#decisions tr:nth-child(2) td:nth-child(2)", "#decisions tr:nth-child(3) td:nth-child(2)", "#fleet td.good", "#decisions td"].map((s) => getComputedStyle(document.querySelector("tbody " + s) || document.querySelector(s)).color)`)
	if colours[0] != colours[3] || colours[1] == colours[3] || colours[2] == colours[3] || colours[2] == colours[1] {
		t.Errorf("warm, cold, unknown_model, good: %q", colours)
	}
	b.do(t, chromedp.Click("#decisions tbody tr:nth-child(2) td", chromedp.ByQuery), chromedp.WaitVisible("#decisions tr:nth-child(2).chosen + tr.detail .box table td", chromedp.ByQuery))
	if got := b.text(t, ".box .said"); got != "cold · m" {
		t.Errorf("the details are of %q", got)
	}
	f.say("/debug/explain", object{"decisions": append([]object{decision(5, "warm")}, all...)})
	updates := eval[int](t, b, "Number(document.body.dataset.updates)")
	until(t, "three more updates", func() bool { return eval[int](t, b, "Number(document.body.dataset.updates)") >= updates+3 })
	if got := eval[string](t, b, `document.querySelector("#decisions tbody tr").dataset.seq`); got != "4" {
		t.Errorf("while details are open, decision %s has come", got)
	}
	b.do(t, chromedp.Evaluate(`window.row = document.querySelector("#decisions tbody tr"); row.focus()`, nil), chromedp.Click("#decisions tr.chosen td", chromedp.ByQuery),
		chromedp.WaitVisible(`#decisions tbody tr[data-seq="5"]`, chromedp.ByQuery))
	if !eval[bool](t, b, `window.row.isConnected && !document.querySelector(".detail")`) {
		t.Error("a row was replaced by an equal one, or the details are still there")
	}
}

// testContrast: every text has the contrast of WCAG's AA to what is behind it, in light and
// in dark.
func testContrast(t *testing.T, f *front) {
	f.say("/debug/replicas", object{"replicas": []object{replica("10.0.0.1:8000", "m", object{"kv_events": "connecting"}), replica("10.0.0.2:8000", "m", object{"ready": false, "why": "timeout"})}})
	f.say("/readyz", "ready\nnote: a note")
	var list []object
	for i, reason := range []string{"warm", "cold", "unknown_model"} {
		list = append(list, object{"seq": i + 1, "at": now, "reason": reason, "model": "m"})
	}
	f.say("/debug/history", samples(object{}, object{}))
	list = append(list, object{"seq": 9, "at": now, "reason": "warm", "withheld": "share", "split": split("prefill_failed", nil), "candidates": []object{{"replica": "10.0.0.1:8000", "state": object{}, "score": object{}}}})
	f.say("/debug/explain", object{"decisions": list})
	b := f.visit(t)
	b.do(t, chromedp.WaitVisible("#decisions tbody td", chromedp.ByQuery), chromedp.Click(`#decisions tr[data-seq="9"] td`, chromedp.ByQuery), chromedp.WaitVisible(".box", chromedp.ByQuery))
	const weak = `(() => {
		const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
		const under = (colours) => { canvas.clearRect(0, 0, 1, 1); for (const c of colours) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); } return [...canvas.getImageData(0, 0, 1, 1).data]; };
		const light = (rgb) => { const [r, g, b] = rgb.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const out = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (walk.nextNode()) {
			const e = walk.currentNode.parentElement;
			if (!walk.currentNode.data.trim() || !e.checkVisibility()) continue;
			const behind = [];
			for (let a = e; a; a = a.parentElement) behind.unshift(getComputedStyle(a).backgroundColor);
			const ground = light(under(behind)), text = light(under([...behind, getComputedStyle(e).color])), ratio = (Math.max(ground, text) + 0.05) / (Math.min(ground, text) + 0.05);
			if (ratio < 4.5) out.add(e.tagName + "." + e.className + " " + ratio.toFixed(2) + " " + walk.currentNode.data.slice(0, 20));
		}
		return [...out];
	})()`
	for _, scheme := range []string{"light", "dark"} {
		b.do(t, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.Sleep(200*time.Millisecond))
		if got := eval[[]string](t, b, weak); len(got) > 0 {
			t.Errorf("%s: %q", scheme, got)
		}
	}
}

// TestDeadReplica: the page says in words why a replica that died is not ready, and of which
// model, without becoming wider.
func TestDeadReplica(t *testing.T) {
	site := stage.StartSite(t, simulated, "")
	b := open(t)
	b.do(t, chromedp.EmulateViewport(1280, 1100), chromedp.Navigate("http://"+site.Admin+"/dashboard/"), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery))
	width := eval[int](t, b, `document.querySelector("#fleet").scrollWidth`)
	site.Replicas[1].Kill()
	until(t, "the error in words", func() bool {
		return strings.Contains(b.text(t, "#fleet tbody tr"), "connection refused: nothing listens at 127.0.0.1:") && strings.Contains(b.text(t, "#state"), "1 of 2 replicas is not ready")
	})
	if now := eval[int](t, b, `document.querySelector("#fleet").scrollWidth`); now > width {
		t.Errorf("the table is %d px wide, and was %d", now, width)
	}
	if row := b.text(t, "#fleet tbody tr td:nth-child(2)"); row != "sim" {
		t.Errorf("the dead replica's model is %q", row)
	}
	site.Replicas[0].Kill()
	until(t, "no replica is ready", func() bool {
		state := b.text(t, "#state")
		return strings.Contains(state, "no replica is ready") && strings.Contains(state, "no replica of sim is ready")
	})
}

// TestDeadRouter: the page notices a router that is gone, and one that hangs, says since when,
// and greys its numbers out until the router is back.
func TestDeadRouter(t *testing.T) {
	site := stage.StartSite(t, simulated, "")
	b := open(t)
	b.do(t, chromedp.Navigate("http://"+site.Admin+"/dashboard/"), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery))
	dead := func() {
		t.Helper()
		b.do(t, chromedp.WaitVisible("#lost", chromedp.ByQuery))
		if said := b.text(t, "#lost"); !strings.HasPrefix(said, "No answer since ") || !strings.Contains(said, "Everything below is from then.") {
			t.Errorf("%q", said)
		}
		if state, faint := b.text(t, "#state"), eval[bool](t, b, `getComputedStyle(document.querySelector("main")).opacity < 0.7`); state != "this router does not answer" || !faint {
			t.Errorf("%q, greyed out: %v", state, faint)
		}
	}
	must.Do(t, site.Router.Signal(syscall.SIGSTOP))
	dead()
	must.Do(t, site.Router.Signal(syscall.SIGCONT))
	b.do(t, chromedp.WaitNotVisible("#lost", chromedp.ByQuery))
	until(t, "ready again", func() bool { return b.text(t, "#state") == "ready" })
	site.Router.Kill()
	dead()
	if got := b.text(t, "#tile-ready"); got != "2 of 2" {
		t.Errorf("the last numbers are gone: %q", got)
	}
}
