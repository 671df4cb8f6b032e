//go:build vllm

package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/fleet"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// trio are three replicas that hand KV blocks to each other over NIXL: the fixture's, and one
// whose answers those of the others are compared with.
type trio struct {
	folder   string // of the model
	replicas [3]*testenv.VLLM
}

// nixl are the flags of a replica of a trio. A request whose KV does not arrive is computed
// where it is.
var nixl = []string{"--kv-transfer-config",
	`{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_buffer_device":"cpu","kv_load_failure_policy":"recompute"}`}

// sideChannel is the environment of one: where the others reach it.
func (f *fixture) sideChannel() []string {
	f.t.Helper()
	port := must.Get(testenv.FreePorts(1))(f.t)
	// An idle replica polls for transfers: its threads must not spin as well.
	return []string{"VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT=" + strconv.Itoa(port[0]), "OMP_WAIT_POLICY=PASSIVE"}
}

// answer is the part of an answer that these tests read.
type answer struct {
	status  int
	raw     string
	Choices []struct {
		Text    string
		Message struct{ Content string }
	}
	Usage struct {
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Params json.RawMessage `json:"kv_transfer_params"`
}

func (a answer) text() string { return a.Choices[0].Text + a.Choices[0].Message.Content }

// ask sends a request to a replica itself; more is put before the body's last brace.
func (f *trio) ask(t *testing.T, replica int, path string, body object, more string) (a answer) {
	t.Helper()
	raw := must.Get(json.Marshal(body))(t)
	if more != "" {
		raw = append(raw[:len(raw)-1], ","+more+"}"...)
	}
	r := testenv.Post(t, "http://"+f.replicas[replica].Addr+path, raw)
	a.status, a.raw = r.Status, string(r.Body)
	if body["stream"] != nil {
		r.Into(t, nil)
	} else {
		r.Into(t, &a)
	}
	return a
}

// leg has a replica compute a prompt for another one.
func (f *trio) leg(t *testing.T, replica int, path string, body object) answer {
	t.Helper()
	short := object{"kv_transfer_params": object{"do_remote_decode": true, "do_remote_prefill": false,
		"remote_engine_id": nil, "remote_block_ids": nil, "remote_host": nil, "remote_port": nil}}
	for k, v := range body {
		short[k] = v
	}
	short["max_tokens"] = 1
	return f.ask(t, replica, path, short, "")
}

func params(raw json.RawMessage) string { return `"kv_transfer_params":` + string(raw) }

// rise wants counters of a replica to rise by so many within a while of do: some follow
// the answer.
func (f *trio) rise(t *testing.T, replica int, want map[string]float64, do func()) {
	t.Helper()
	addr := f.replicas[replica].Addr
	before := testenv.Metrics(t, addr)
	do()
	var wrong []string
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		after := testenv.Metrics(t, addr)
		wrong = nil
		for name, v := range want {
			if got := matching(after, name) - matching(before, name); got != v {
				wrong = append(wrong, fmt.Sprintf("%s rose by %v, want %v", name, got, v))
			}
		}
		if len(wrong) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// matching adds up the lines of a metric; a second word is the value of a label.
func matching(page map[string]float64, name string) (total float64) {
	name, label, _ := strings.Cut(name, " ")
	for line, v := range page {
		if of, labels, _ := strings.Cut(line, "{"); of == name && strings.Contains(labels, `"`+label) {
			total += v
		}
	}
	return total
}

func idPrompt(from, to int) object {
	ids := make([]int, to-from)
	for i := range ids {
		ids[i] = from + i
	}
	return object{"model": served, "prompt": ids, "max_tokens": 4, "temperature": 0}
}

// legs are what vLLM does with the two legs of a request, sent by hand. vllmsim's tests
// have the same figures.
func (f *trio) legs(t *testing.T) {
	const path = "/v1/completions"
	for _, c := range []struct {
		name             string
		from, to         int
		pHit, dHit       int
		pulled, describe float64
	}{
		{"cold", 1000, 1300, 0, 0, 300, 10},
		{"full blocks alone", 2000, 2320, 0, 0, 320, 10},
		{"the same again", 2000, 2320, 288, 288, 32, 1},
		{"a longer prompt", 2000, 2599, 320, 320, 279, 9},
		{"two tokens", 5, 7, 0, 0, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, body := float64(c.to-c.from), idPrompt(c.from, c.to)
			var p, d answer
			f.rise(t, 0, map[string]float64{"vllm:prefix_cache_hits_total": float64(c.pHit), "vllm:external_prefix_cache_queries_total": n - float64(c.pHit),
				"vllm:external_prefix_cache_hits_total": 0, "vllm:prompt_tokens_by_source_total local_compute": n - float64(c.pHit)}, func() { p = f.leg(t, 0, path, body) })
			for _, part := range []string{fmt.Sprintf(`"remote_num_tokens":%v`, n), fmt.Sprintf(`"remote_prefill_cached_tokens":%d`, c.pHit), `"transfer_mode":"pull"`} {
				if !bytes.Contains(p.Params, []byte(part)) {
					t.Errorf("parameters without %s: %s", part, p.Params)
				}
			}
			f.rise(t, 1, map[string]float64{
				"vllm:prefix_cache_queries_total": n, "vllm:prefix_cache_hits_total": float64(c.dHit),
				"vllm:external_prefix_cache_queries_total": c.pulled, "vllm:external_prefix_cache_hits_total": c.pulled,
				"vllm:prompt_tokens_by_source_total external_kv_transfer": c.pulled, "vllm:prompt_tokens_by_source_total local_cache_hit": float64(c.dHit),
				"vllm:prompt_tokens_by_source_total local_compute": 0, "vllm:prompt_tokens_cached_total": n,
				"vllm:nixl_xfer_time_seconds_count": 1, "vllm:nixl_bytes_transferred_sum": c.describe * 32 * 1024, "vllm:nixl_num_failed_transfers_total": 0,
			}, func() { d = f.ask(t, 1, path, body, params(p.Params)) })
			if d.Usage.Details.Cached != c.pHit {
				t.Errorf("the answer's usage has %d cached tokens, P had %d", d.Usage.Details.Cached, c.pHit)
			}
			if alone := f.ask(t, 2, path, body, ""); alone.text() != d.text() {
				t.Errorf("answers %q, a replica alone %q", d.text(), alone.text())
			}
			// Pulled blocks are cached like others.
			if again := f.ask(t, 1, path, body, ""); again.Usage.Details.Cached != (c.to-c.from-1)/32*32 {
				t.Errorf("the same prompt alone then finds %d tokens", again.Usage.Details.Cached)
			}
		})
	}
	t.Run("chat", func(t *testing.T) {
		body := completion(user(story(1)))
		p := f.leg(t, 0, "/v1/chat/completions", body)
		d, alone := f.ask(t, 1, "/v1/chat/completions", body, params(p.Params)), f.ask(t, 2, "/v1/chat/completions", body, "")
		if d.text() != alone.text() {
			t.Errorf("answers %q, a replica alone %q", d.text(), alone.text())
		}
	})
	t.Run("a streamed leg has no parameters", func(t *testing.T) {
		body := idPrompt(3000, 3100)
		body["stream"] = true
		if p := f.leg(t, 0, path, body); strings.Contains(p.raw, "remote_engine_id") {
			t.Errorf("%s", p.raw)
		}
	})
}

// unchecked shows why parameters must be used once, and for their own prompt: vLLM takes
// them again, and takes another prompt's KV, without an error.
func (f *trio) unchecked(t *testing.T) {
	const path = "/v1/completions"
	right, wrong := idPrompt(4000, 4320), idPrompt(6000, 6320)
	p := f.leg(t, 0, path, right)
	f.ask(t, 1, path, right, params(p.Params))
	f.rise(t, 1, map[string]float64{"vllm:external_prefix_cache_hits_total": 32, "vllm:nixl_num_failed_transfers_total": 0}, func() {
		f.ask(t, 1, path, right, params(p.Params))
	})
	p = f.leg(t, 0, path, idPrompt(8000, 8320))
	f.rise(t, 1, map[string]float64{"vllm:external_prefix_cache_hits_total": 320, "vllm:nixl_num_failed_transfers_total": 0}, func() {
		f.ask(t, 1, path, wrong, params(p.Params))
	})
	if again := f.ask(t, 1, path, wrong, ""); again.Usage.Details.Cached != 288 {
		t.Errorf("of the other prompt's KV, %d tokens are cached as this prompt's", again.Usage.Details.Cached)
	}
}

// found are the connectors and roles as the fleet learns them.
func (f *trio) found(t *testing.T) {
	roles := []fleet.Role{fleet.RolePrefill, fleet.RoleDecode, fleet.RoleBoth}
	var o fleet.Options
	for i, r := range f.replicas {
		o.Replicas = append(o.Replicas, fleet.ReplicaOptions{Address: r.Addr, Role: roles[i].String()})
	}
	fl := must.Get(fleet.New(o, fleet.Hooks{}))(t)
	testenv.Run(t, fl.Run)
	of := func(i int) *fleet.Replica { return fl.Snapshot().Replica(f.replicas[i].Addr) }
	known := func() bool { // the page that names the connector may come after the replica is ready
		for i := range roles {
			if r := of(i); r == nil || r.Transfer.Connector == "" {
				return false
			}
		}
		return fl.Snapshot().Ready == len(roles)
	}
	testenv.Until(t, time.Minute, "all replicas have a known connector", known, func() any { return fl.Snapshot().Ready })
	for i, role := range roles {
		if r := of(i); r.Role != role || r.Transfer != (fleet.Transfer{Connector: "NixlConnector", From: fleet.FoundInMetrics}) {
			t.Errorf("replica %d: role %v, transfer %+v", i, r.Role, r.Transfer)
		}
		for j := range roles {
			if !fleet.Alike(of(i), of(j)) {
				t.Errorf("replicas %d and %d are not alike", i, j)
			}
		}
	}
}

// apart tests all that three replicas with NIXL can show. The fixture's own router and Envoy
// are ended first.
func (f *fixture) apart(t *testing.T) {
	f.envoy.Stop()
	f.extproc.Stop()
	f.launchAlone()
	f.awaitHealth(f.alone)
	g := &trio{folder: f.folder, replicas: [3]*testenv.VLLM{f.replicas[0], f.replicas[1], f.alone}}
	t.Run("connectors and roles are found", g.found)
	t.Run("chats", g.chats) // before legs by hand, some of which expire
	t.Run("legs by hand", g.legs)
	t.Run("parameters are not checked", g.unchecked)
	t.Run("sidecar", g.sidecar)
	t.Run("kills", g.kills)
}
