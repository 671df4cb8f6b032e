package sglang

import (
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/render/testkit/must"
)

// info is an answer of /server_info, as far as it is read.
const info = `{"version":"0.5.23","page_size":16,"dcp_size":2,"speculative_algorithm":"EAGLE","enable_hierarchical_cache":true,
"disable_radix_cache":false,"enable_cache_report":true,"enable_metrics":true,"max_total_num_tokens":4096,"launch_command":"x","internal_states":[{}],
"kv_events_config":"{\"publisher\":\"zmq\",\"format\":\"dynamo\"}",
"kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"kv","block_size":32,"dp_size":2,"replay_endpoint_port_base":5657}}`

func decode(t *testing.T, text string) *Server {
	t.Helper()
	return must.Get(Decode([]byte(text)))(t)
}

func TestDecode(t *testing.T) {
	s := decode(t, info)
	if s.BlockSize() != 32 || !s.Dynamo() || s.Events.ReplayPort != 5657 || s.Tokens != 4096 || len(s.Missing(true)) != 0 {
		t.Errorf("%+v", s)
	}
	if s := decode(t, `{"version":"0.5.23","page_size":16,"dcp_size":2}`); s.BlockSize() != 32 || s.Dynamo() || len(s.Missing(true)) != 3 || len(s.Missing(false)) != 2 {
		t.Errorf("%+v: %q", s, s.Missing(true))
	}
	for _, bad := range []string{``, `[]`, `{"version":3}`, `{"kv_events":[]}`, `{"version":"` + strings.Repeat("x", 2000) + `"}`} {
		if s, err := Decode([]byte(bad)); err == nil {
			t.Errorf("%.20s: %+v", bad, s)
		}
	}
}

// TestSettings: what the events of a release show, and why the prediction is no more than an
// upper bound.
func TestSettings(t *testing.T) {
	full := []string{"full"}
	for _, c := range []struct {
		name, text string
		layout     []string
		kinds      []string
		sight      index.Sight
		limit      string
	}{
		{"all of it", info, full, nil, index.SightAll, ""},
		{"default format", `{"version":"0.5.22"}`, nil, []string{"full"}, index.SightUsual, ""},
		{"unknown attention", `{"version":"0.5.22"}`, nil, nil, index.SightUsual, "config.json"},
		{"windows", `{"version":"0.5.22"}`, nil, []string{"full", "swa"}, index.SightUsual, "sliding windows"},
		{"no adapters", `{"version":"0.5.20.post1"}`, full, nil, index.SightSalts, "0.5.22"},
		{"no salts", `{"version":"0.5.12"}`, full, nil, index.SightTokens, "0.5.20"},
		{"no version", `{}`, full, nil, index.SightUsual, "version"},
		{"no cache", `{"version":"0.5.23","disable_radix_cache":true}`, full, nil, index.SightUsual, "disable-radix-cache"},
		{"dynamo too early", `{"version":"0.5.21","kv_events_config":"{\"format\":\"dynamo\"}"}`, full, nil, index.SightSalts, "0.5.22"},
	} {
		s := decode(t, c.text)
		s.Kinds = c.kinds
		got := s.Settings(c.layout)
		if got.Sight != c.sight || (got.Limit == "") != (c.limit == "") || !strings.Contains(got.Limit, c.limit) || got.Rule != index.GroupRuleSGLang || !got.EagleKnown {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := decode(t, info).Settings(nil); !got.Loads || got.LoadLeast != 10 || got.Block != 32 {
		t.Errorf("%+v", got)
	}
}
