package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/config"
	"warmroute/internal/config/configtest"
	"warmroute/render/testkit/must"
)

func parseConfig(t *testing.T, text string) (Config, error) {
	t.Helper()
	return config.Parse("f", []byte(text), defaultConfig(), os.LookupEnv)
}

func TestTrustedHeadersAreValidated(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "x-tenant": true, "x-Tenant": false, ":path": false, "x gap": false, envoy.HeaderDestination: false, "authorization": true, "content-type": false, "content-length": false, "host": false,
	} {
		for _, field := range []string{"tenant_header", "priority_header"} {
			_, err := parseConfig(t, "filter: {"+field+": \""+name+"\"}")
			if (err == nil) != ok {
				t.Errorf("%s %q: %v", field, name, err)
			} else if err != nil && !strings.Contains(err.Error(), "filter."+field) {
				t.Errorf("%s %q: %v does not name the field", field, name, err)
			}
		}
	}
	if _, err := parseConfig(t, "filter: {tenant_header: x-a, priority_header: x-a}"); err == nil {
		t.Error("one header for two things is taken")
	}
}

// TestNoZeroStandsForADefault: what check shows is in use.
func TestNoZeroStandsForADefault(t *testing.T) {
	for _, field := range []string{
		"envoy: {idle_timeout: 0s}", "envoy: {body_limit: 0}", "fleet: {scrape_interval: 0s}", "fleet: {dead_after: 0s}",
		"index: {max_scopes: 0}", "index: {max_blocks: 0}", "index: {replica_ttl: 0s}", "index: {storage_ttl: 0s}",
	} {
		if _, err := parseConfig(t, field); err == nil || !strings.Contains(err.Error(), ": is 0; leave it out for the default") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// TestSettingsReachTheFilter: each setting of requests changes what the filter is given.
func TestSettingsReachTheFilter(t *testing.T) {
	given := func(text string) (out struct {
		filter.RouterOptions
		filter.ServerOptions
	}) {
		c := must.Get(parseConfig(t, text+"\nfleet: {replicas: [{address: \"10.0.0.1:8000\"}]}\n"))(t)
		out.RouterOptions, out.ServerOptions = c.routerOptions(), c.serverOptions(nil, nil)
		return out
	}
	usual := given("")
	for _, text := range []string{
		"filter: {max_body: 1000000}", "filter: {body_wait: 7s}", "filter: {path_prefixes: [/a]}", "filter: {tenant_header: x-a}",
		"filter: {priority_header: x-a}", "filter: {reason_header: true}", "filter: {picker: true}", "filter: {always_pick: true}",
		"filter: {mode: shadow}", "filter: {share: 50}", "filter: {share: 50, share_by: x-a}", "filter: {opt_out_header: x-a}", "filter: {max_streams: 7}",
		"prefill_decode: {mode: pull}", "prefill_decode: {mode: pull, max_wait: 7s}", "sessions: {share: 0.1}", "sessions: {share: 0.1, header: x-a}", "sessions: {share: 0.1, max_wait: 7s}",
		"filter: {token_budget: 70ms}", "tokens: {keep_texts: false}",
	} {
		if o := given(text); reflect.DeepEqual(o, usual) {
			t.Errorf("%s changes nothing", text)
		}
	}
}

// TestPathPrefixesThatNoRequestHas are refused.
func TestPathPrefixesThatNoRequestHas(t *testing.T) {
	for prefix, ok := range map[string]bool{"/openai": true, "/a/b.c": true, "/a%20b": true, "openai": false, "/openai/": false, "/a?b": false, "/a#b": false, "/a//b": false, "/a/../b": false, "/a%2Fb": false, "/a%5cb": false, "/openai/v1": false, "/v1": false, "/v1/a": true} {
		if _, err := parseConfig(t, "filter: {path_prefixes: [\""+prefix+"\"]}"); (err == nil) != ok {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

// sections joins paths to the sections all of whose settings are among them.
func sections(all []configtest.Field, when config.When) string {
	in, of := map[string]int{}, map[string]int{}
	var fields []configtest.Field
	for _, f := range all {
		if f.Section() || strings.ContainsAny(f.Path, "[*") {
			continue
		}
		fields = append(fields, f)
		top, _, _ := strings.Cut(f.Path, ".")
		of[top]++
		if f.Applies == when {
			in[top]++
		}
	}
	var paths []string
	for _, f := range fields {
		if f.Applies != when {
			continue
		}
		path := f.Path
		if top, _, nested := strings.Cut(path, "."); nested && in[top] == of[top] {
			path = top
		} else if at := strings.LastIndex(path, ".tls."); at > 0 {
			path = path[:at+len(".tls")]
		}
		if path = "`" + path + "`"; !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return strings.Join(paths, ", ")
}

// TestDocsSayWhatNeedsARestart: the lists in the operations guide are the code's.
func TestDocsSayWhatNeedsARestart(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/operations.md"))(t)
	all := reference(t)
	for when, begin := range map[config.When]string{config.AtRestart: "- with a restart of the router: ", config.AtEnvoy: "prints then: "} {
		if want := begin + sections(all, when) + "."; !strings.Contains(string(text), want) {
			t.Errorf("docs/operations.md does not say %q", want)
		}
	}
}
