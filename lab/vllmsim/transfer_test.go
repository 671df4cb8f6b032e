package vllmsim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/internal/testenv"
)

const askForParams = `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}`

// twoReplicas are a replica that computes prompts and one that answers.
type twoReplicas struct{ p, d *Sim }

func startTwo(t *testing.T, o Options) twoReplicas {
	t.Helper()
	o.Model, o.BlockSize, o.Handover, o.TransferRate = "m", 32, -1, -1
	if o.Connector == "" {
		o.Connector = Nixl
	}
	return twoReplicas{startSim(t, fast(o)), startSim(t, fast(o))}
}

// idsOf is a request for a completion of the ids [from, to), without its last brace.
func idsOf(from, to int) string {
	ids := make([]int, to-from)
	for i := range ids {
		ids[i] = from + i
	}
	b, _ := json.Marshal(ids)
	return `{"model":"m","prompt":` + string(b)
}

// completed is the part of an answer that these tests read.
type completed struct {
	Choices []struct{ Text string }
	Usage   struct {
		Details struct {
			Cached  int  `json:"cached_tokens"`
			Created *int `json:"created_cache_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Params json.RawMessage `json:"kv_transfer_params"`
}

// leg has p compute the prompt, and returns its parameters.
func (r twoReplicas) leg(t *testing.T, body string) json.RawMessage {
	t.Helper()
	return want[completed](t, r.p, "/v1/completions", body+`,"max_tokens":1`+askForParams).Params
}

func with(body string, params json.RawMessage) string {
	return body + `,"max_tokens":4,"kv_transfer_params":` + string(params) + `}`
}

// sums are the values of a page's lines, added up over their labels but those in keep.
func sums(t *testing.T, s *Sim) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line, v := range testenv.Metrics(t, s.Addr()) {
		name, labels, _ := strings.Cut(line, "{")
		out[name] += v
		for _, label := range []string{"source", "why"} {
			if _, value, ok := strings.Cut(labels, label+`="`); ok {
				value, _, _ = strings.Cut(value, `"`)
				out[name+" "+value] += v
			}
		}
	}
	return out
}

// counted wants counters to have risen by so many.
func counted(t *testing.T, s *Sim, before, want map[string]float64) {
	t.Helper()
	after := sums(t, s)
	for name, rise := range want {
		if got := after[name] - before[name]; got != rise {
			t.Errorf("%s rose by %v, want %v", name, got, rise)
		}
	}
}

// The rises are those of two vLLM 0.32.0 with NixlConnector and blocks of 32 tokens, for
// the same prompts in the same order.
func TestTransferCountsLikeVLLM(t *testing.T) {
	r := startTwo(t, Options{})
	for _, c := range []struct {
		from, to       int
		params         string
		pHit, dHit     int
		pulled, blocks float64
	}{
		{1000, 1300, `"remote_num_tokens":300,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`, 0, 0, 300, 10},
		{2000, 2320, `"remote_num_tokens":320,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`, 0, 0, 320, 10},
		{2000, 2320, `"remote_num_tokens":320,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":288}`, 288, 288, 32, 1},
		{2000, 2599, `"remote_num_tokens":599,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":320}`, 320, 320, 279, 9},
		{5, 7, `"remote_num_tokens":2,"remote_blocks_expiry_time":null,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`, 0, 0, 2, 1},
	} {
		n := float64(c.to - c.from)
		p, d := sums(t, r.p), sums(t, r.d)
		params := r.leg(t, idsOf(c.from, c.to))
		if !bytes.HasPrefix(params, []byte(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[`)) || !bytes.HasSuffix(params, []byte(c.params)) {
			t.Errorf("parameters %s, want %s", params, c.params)
		}
		a := want[completed](t, r.d, "/v1/completions", with(idsOf(c.from, c.to), params))
		if u := a.Usage.Details; u.Cached != c.pHit || a.Params != nil {
			t.Errorf("the answer's usage says %+v, with parameters %s", u, a.Params)
		}
		if again := want[completed](t, r.p, "/v1/completions", idsOf(c.from, c.to)+`,"max_tokens":4}`); again.Choices[0].Text != a.Choices[0].Text {
			t.Errorf("answers %q, and %q where the prompt was computed", a.Choices[0].Text, again.Choices[0].Text)
		}
		counted(t, r.p, p, map[string]float64{
			"vllm:nixl_num_kv_expired_reqs_total": 0, "vllm:nixl_num_notifications_after_expiry_total": 0, "vllm:nixl_xfer_time_seconds_count": 0,
		})
		counted(t, r.d, d, map[string]float64{
			"vllm:prefix_cache_queries_total": n, "vllm:prefix_cache_hits_total": float64(c.dHit),
			"vllm:external_prefix_cache_queries_total": c.pulled, "vllm:external_prefix_cache_hits_total": c.pulled,
			"vllm:prompt_tokens_by_source_total external_kv_transfer": c.pulled, "vllm:prompt_tokens_by_source_total local_cache_hit": float64(c.dHit),
			"vllm:prompt_tokens_by_source_total local_compute": 0, "vllm:prompt_tokens_cached_total": n,
			"vllm:nixl_xfer_time_seconds_count": 1, "vllm:nixl_bytes_transferred_sum": c.blocks * 32 * 1024,
			"vllm:nixl_num_failed_transfers_total": 0, "vllmsim_transfer_refused_total": 0,
		})
	}
	if p, d := r.p.Held(0, 0), r.d.Held(0, 0); len(d) == 0 || slices.ContainsFunc(d, func(h uint64) bool { return !slices.Contains(p, h) }) {
		t.Errorf("%d blocks at P, %d at D, some of them not P's", len(p), len(d))
	}
}

// D announces the blocks that it has pulled as P announced them.
func TestPulledBlocksAreAnnounced(t *testing.T) {
	o := Options{Events: "127.0.0.1:0"}
	r := startTwo(t, o)
	atP, atD := subscribe(t, r.p, 0, ""), subscribe(t, r.d, 0, "")
	params := r.leg(t, idsOf(0, 100))
	want[completed](t, r.d, "/v1/completions", with(idsOf(0, 100), params))
	const stamp = 10 // bytes of the list's head and the time
	p, d := receive(t, atP)[2], receive(t, atD)[2]
	if len(p) < stamp || len(d) < stamp || !bytes.Equal(p[stamp:], d[stamp:]) {
		t.Errorf("P published %x\nD published %x", p, d)
	}
}

// Parameters are good once, unchanged, in time, and for their own prompt: D answers others
// with 500.
func TestTransferRefuses(t *testing.T) {
	body := idsOf(0, 100)
	for _, c := range []struct {
		why   string
		lease time.Duration
		send  func(*testing.T, twoReplicas, json.RawMessage) string
	}{
		{refusedUsed, 0, func(t *testing.T, r twoReplicas, params json.RawMessage) string {
			want[completed](t, r.d, "/v1/completions", with(body, params))
			return with(body, params)
		}},
		{refusedForeign, 0, func(_ *testing.T, _ twoReplicas, params json.RawMessage) string { return with(idsOf(1, 101), params) }},
		{refusedChanged, 0, func(_ *testing.T, _ twoReplicas, params json.RawMessage) string {
			return with(body, bytes.Replace(params, []byte(`"remote_num_tokens":100`), []byte(`"remote_num_tokens":1e2`), 1))
		}},
		{refusedUnknown, 0, func(_ *testing.T, r twoReplicas, params json.RawMessage) string {
			return with(body, bytes.Replace(params, []byte(`"remote_request_id":"`), []byte(`"remote_request_id":"x`), 1))
		}},
		{refusedLate, time.Millisecond, func(t *testing.T, r twoReplicas, params json.RawMessage) string {
			eventually(t, func() bool { return sums(t, r.p)["vllm:nixl_num_kv_expired_reqs_total"] == 1 })
			return with(body, params)
		}},
	} {
		t.Run(c.why, func(t *testing.T) {
			r := startTwo(t, Options{Lease: c.lease, LoadFailure: Recompute})
			send := c.send(t, r, r.leg(t, body))
			status, answer := call(t, r.d, "/v1/completions", send)
			if status != http.StatusInternalServerError || !strings.Contains(string(answer), "refuses them: "+c.why) {
				t.Errorf("status %d: %s", status, answer)
			}
			if n := sums(t, r.d); r.d.Refused() != 1 || n["vllmsim_transfer_refused_total "+c.why] != 1 {
				t.Errorf("%d counted, %v of this kind", r.d.Refused(), n["vllmsim_transfer_refused_total "+c.why])
			}
			if usage := r.p.ranks[0].read().usage; c.why == refusedLate && usage != 0 {
				t.Errorf("after the lease %v of P's blocks are in use", usage)
			}
		})
	}
}

// A sidecar that decodes a body and encodes it again changes the order of members.
func TestTransferTakesMembersInAnyOrder(t *testing.T) {
	r := startTwo(t, Options{})
	body := idsOf(0, 100)
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.leg(t, body), &members); err != nil {
		t.Fatal(err)
	}
	sorted, err := json.MarshalIndent(members, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want[completed](t, r.d, "/v1/completions", with(body, sorted))
	if n := sums(t, r.d)["vllm:external_prefix_cache_hits_total"]; n != 100 {
		t.Errorf("%v tokens were moved, want 100", n)
	}
}

// A prompt that is handed out keeps its blocks from eviction until it is pulled.
func TestHandedOutBlocksStay(t *testing.T) {
	r := startTwo(t, Options{Blocks: 9})
	params := r.leg(t, idsOf(0, 200)) // 7 of 8 blocks
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.p.Addr()+"/v1/completions", strings.NewReader(idsOf(5000, 5100)+`,"max_tokens":1}`))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			other <- 0
			return
		}
		resp.Body.Close()
		other <- resp.StatusCode
	}()
	eventually(t, func() bool { return sums(t, r.p)["vllm:num_requests_waiting"] == 1 })
	want[completed](t, r.d, "/v1/completions", with(idsOf(0, 200), params))
	if status := <-other; status != http.StatusOK {
		t.Errorf("the prompt that waited for room: status %d", status)
	}
}

// Without P, D computes the prompt itself or answers 500, by its policy. The rises are
// vLLM's: it counts the lookups of both tries, and the hit that did not come.
func TestTransferFails(t *testing.T) {
	body := idsOf(0, 479)
	for _, policy := range []string{Recompute, Fail} {
		t.Run(policy, func(t *testing.T) {
			r := startTwo(t, Options{LoadFailure: policy})
			params := r.leg(t, body)
			r.d.SetFaults(Faults{TransferFails: true})
			before := sums(t, r.d)
			status, answer := call(t, r.d, "/v1/completions", with(body, params))
			wants := map[string]float64{"vllm:nixl_num_failed_transfers_total": 1, "vllm:external_prefix_cache_hits_total": 479}
			if policy == Fail {
				if status != http.StatusInternalServerError {
					t.Errorf("status %d: %s", status, answer)
				}
			} else {
				var a completed
				if err := json.Unmarshal(answer, &a); err != nil || status != http.StatusOK || a.Usage.Details.Cached != 0 {
					t.Errorf("status %d: %s", status, answer)
				}
				wants["vllm:prefix_cache_queries_total"], wants["vllm:external_prefix_cache_queries_total"] = 958, 958
				wants["vllm:prompt_tokens_by_source_total local_compute"] = 479
			}
			counted(t, r.d, before, wants)
		})
	}
	t.Run("P is gone", func(t *testing.T) {
		r := startTwo(t, Options{LoadFailure: Recompute})
		gone, err := New(Options{Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		params := fmt.Sprintf(`{"do_remote_prefill":true,"remote_request_id":"r","remote_host":"127.0.0.1","remote_port":%s}`, gone.Addr()[strings.LastIndexByte(gone.Addr(), ':')+1:])
		if err := gone.Close(); err != nil {
			t.Fatal(err)
		}
		want[completed](t, r.d, "/v1/completions", with(body, json.RawMessage(params)))
		counted(t, r.d, nil, map[string]float64{"vllm:nixl_num_failed_transfers_total": 1})
	})
}

func TestLegsFail(t *testing.T) {
	r := startTwo(t, Options{})
	body := idsOf(0, 100)
	for _, c := range []struct {
		faults Faults
		status int
	}{
		{Faults{LegStatus: 503}, 503}, {Faults{LegStatus: 422}, 422}, {Faults{LegNoParams: true}, 200},
	} {
		r.p.SetFaults(c.faults)
		status, answer := call(t, r.p, "/v1/completions", body+`,"max_tokens":1`+askForParams)
		if status != c.status || strings.Contains(string(answer), "remote_engine_id") {
			t.Errorf("%+v: status %d: %s", c.faults, status, answer)
		}
		want[completed](t, r.p, "/v1/completions", body+`,"max_tokens":1}`) // other requests are not legs
	}
	r.p.SetFaults(Faults{LegReset: true})
	if resp, err := http.Post("http://"+r.p.Addr()+"/v1/completions", "application/json", strings.NewReader(body+askForParams)); err == nil {
		resp.Body.Close()
		t.Errorf("an answer came: status %d", resp.StatusCode)
	}
	r.p.SetFaults(Faults{LegDelay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.p.Addr()+"/v1/completions", strings.NewReader(body+askForParams))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("a leg that is to wait an hour was answered: status %d", resp.StatusCode)
	}
}

// A stream has no parameters, nor has a replica without a connector.
func TestNoParameters(t *testing.T) {
	r := startTwo(t, Options{})
	if _, answer := call(t, r.p, "/v1/completions", idsOf(0, 100)+`,"stream":true`+askForParams); strings.Contains(string(answer), "remote_engine_id") {
		t.Errorf("a stream has %s", answer)
	}
	s := startSim(t, fast(Options{Model: "m"}))
	if a := want[completed](t, s, "/v1/completions", idsOf(0, 100)+askForParams); a.Params != nil {
		t.Errorf("a replica without a connector answers with %s", a.Params)
	}
	params := r.leg(t, idsOf(0, 100))
	want[completed](t, s, "/v1/completions", with(idsOf(0, 100), params)) // it ignores them, as vLLM does
}

// eventually waits until it is so.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came to be so")
		}
	}
}
