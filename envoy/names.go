package envoy

// Names shared with Envoy. warmroute sets no other headers.
const (
	// HeaderDestination names the picked replicas, best first:
	// "ip:port[,ip:port...]". Set by warmroute on the request, read by Envoy's
	// override_host policy. Endpoint-picker protocol 004.
	HeaderDestination = "x-gateway-destination-endpoint"

	// HeaderRank is vLLM's choice of data-parallel rank inside a replica. Set by
	// warmroute when the replica has more than one rank, read by vLLM.
	HeaderRank = "x-data-parallel-rank"

	// HeaderReason carries the decision's reason code to the client on the
	// response, if configured.
	HeaderReason = "x-warmroute-reason"

	// HeaderServed has the serving replica, for the client. Envoy sets it on the
	// response if configured (Options.ServedHeader).
	HeaderServed = "x-warmroute-served"

	// MetadataLB is the dynamic metadata namespace of Envoy's load balancers.
	// warmroute writes HeaderDestination's value under the same key there: the
	// protocol requires header and metadata to be equal.
	MetadataLB = "envoy.lb"

	// MetadataServed is the key in MetadataLB under which Envoy reports the
	// endpoint that really served, once it is known (override_host's
	// selected_host_key). Read by warmroute at response headers.
	MetadataServed = "x-gateway-destination-endpoint-served"

	// AttributeUpstream is Envoy's request attribute with the address of the
	// upstream host, another way to get the value of MetadataServed.
	AttributeUpstream = "upstream.address"

	// MetadataOwn is the namespace of warmroute's own dynamic metadata of a
	// request to access logs: reason, model, prompt_tokens, predicted_tokens.
	MetadataOwn = "warmroute"

	// MetadataBody and KeyModel hold the model a body names, read by Envoy itself
	// (json_to_metadata) for its own routes; warmroute does not see them.
	MetadataBody = "warmroute.body"
	KeyModel     = "model"

	// MetadataSubset and KeySubset hold the gateway's restriction of the pick to
	// some endpoints. Set by the gateway, read by warmroute on the headers
	// message and kept from there on.
	MetadataSubset = "envoy.lb.subset_hint"
	KeySubset      = "x-gateway-destination-endpoint-subset"
)

// Owned lists the request headers only warmroute may set. Configurations
// remove a client's own copies ahead of ext_proc.
var Owned = [...]string{HeaderDestination, HeaderRank}
