package main

import "strings"

// removed are the settings that releases had, with what holds instead.
var removed = map[string]string{
	"tls.every": "the files are read every second",

	"fleet.http":                      "TLS is in fleet.tls, with enabled: true in place of tls: true, and the API key in fleet.token_file",
	"fleet.scrape_timeout":            "a page is waited for as long as fleet.dead_after allows, a second at most",
	"fleet.learn_interval":            "models and event sources are requested again every 30 s",
	"fleet.max_backoff":               "a replica that does not answer is tried again after 5 s at most",
	"fleet.max_page_bytes":            "8 MiB of a metrics page are read",
	"fleet.max_replicas":              "there can be 4,096 replicas",
	"fleet.dns[].every":               "names are looked up every second",
	"fleet.replicas[].hash_algorithm": "it is reported, or detected from the KV events",

	"fleet.replicas[].full_attention_group": "KV events name the kinds of cache groups from vLLM 0.27 on",
	"fleet.replicas[].cache.groups":         "KV events name the kinds of cache groups from vLLM 0.27 on",

	"fleet.dns[].srv":         "a name that begins with an underscore is one of SRV records",
	"fleet.replicas[].render": "it is tried whether a replica answers /render",

	"kubernetes.version": "the API of the pool is inference.networking.k8s.io/v1",
	"kubernetes.context": "the current context of the kubeconfig is used",

	"index.max_scope_blocks": "it is half of index.max_blocks",
	"index.max_orphans":      "a block whose parent is not known is left out",
	"index.sweep_every":      "expired entries are removed once a minute, and five times within index.replica_ttl",
	"index.sync_timeout":     "a replica counts as ready after 10 s",
	"index.probe_every":      "silent replicas are asked for missed events every 30 s",

	"warm_up.timeout":    "the peers together are waited for for 10 s",
	"warm_up.token_file": "calls to the peers carry index_service.token_file",

	"filter.decisions": "1,024 decisions are kept",
	"filter.ranked":    "a hint names three replicas, and one with filter.always_pick",

	"tokens.sample_every":                         "one request in 1,000 has its token ids compared with a replica's",
	"tokens.check_every":                          "features that are not confirmed yet are compared again every 5 s",
	"tokens.models[].max_model_len":               "it is the length that the replicas report",
	"tokens.models[].disabled_thinking_effort":    "it is found out from the template; otherwise a replica computes the token ids",
	"tokens.models[].responses_tool_fields":       "replicas compute the token ids of such requests",
	"tokens.models[].start_date":                  "replicas compute the token ids where the date differs",
	"tokens.models[].harmony_system_instructions": "replicas compute the token ids of such servers",
	"tokens.models[].store_mib":                   "the beginnings of a model's prompts take 64 MiB, within tokens.max_loaded_mib",

	"envoy.replicas":     "`envoy-config -static` lists those of fleet",
	"policy.spread_ties": "equals are always spread",

	"policy.text_ttl_seconds":        "where a text was sent counts for a day",
	"policy.pressure_window_seconds": "pressure is counted over a minute",
	"policy.pressure_threshold":      "pressure is raised by one decision within a minute",

	"tracing.service_name": "it is warmroute, or the environment's OTEL_SERVICE_NAME",
	"tracing.timeout":      "a batch is waited for 5 s",
	"tracing.queue":        "4,096 spans wait at most",
}

// like are sections with the fields of another.
var like = strings.NewReplacer("xds.tls.", "tls.", "index_service.tls.", "tls.", "fleet.dns[].replica.", "fleet.replicas[].", "kubernetes.replica.", "fleet.replicas[].")

// Removed implements config.Removed.
func (Config) Removed(path string) string {
	if strings.HasPrefix(path, "policy.models.") { // names of models have dots, too
		path = "policy" + path[strings.LastIndexByte(path, '.'):]
	}
	return removed[like.Replace(path)]
}
