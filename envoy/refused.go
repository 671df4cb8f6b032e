package envoy

// operatorPaths are the beginnings of paths of vLLM, SGLang and TensorRT-LLM that are for
// operators: what is there changes a replica for everybody, or tells what others do.
var operatorPaths = []string{
	"/metrics", "/prometheus", "/perf_metrics", "/load", "/v1/load", "/unload_", "/v1/unload_", "/server_info", "/get_server_info", "/get_load",
	"/get_internal_state", "/get_weights_by_name", "/get_world_size", "/kv_", "/steady_clock_offset", "/set_", "/configure_logging",
	"/reset_", "/flush_cache", "/clear_", "/hicache", "/sleep", "/wake_up", "/is_", "/pause", "/resume", "/continue_generation", "/release_",
	"/abort_request", "/inference/v1/abort_request", "/open_session", "/close_session", "/collective_rpc", "/start_", "/stop_", "/dump", "/freeze_gc", "/slow_down",
	"/scale_", "/fault_tolerance", "/update_weight", "/init_weight", "/finish_weight", "/shutdown_weight", "/destroy_weight", "/send_weight",
	"/weight_", "/check_weight", "/remote_instance",
}

// refusedAnswer is the error with which requests for operatorPaths are answered.
const refusedAnswer = "This path is for the operators of the replicas. Envoy passes it on where envoy.operator_paths is true."

// behind returns paths, also behind prefixes.
func behind(prefixes []string, paths ...string) (all []string) {
	for _, before := range append([]string{""}, prefixes...) {
		for _, path := range paths {
			all = append(all, before+path)
		}
	}
	return all
}
