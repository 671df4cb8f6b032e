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

	// HeaderOptOut is the default name of the request header by which a request passes
	// without a hint. Gateways and clients may set it: it is not in Owned.
	HeaderOptOut = "x-warmroute-opt-out"

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
	// request to access logs: reason, withheld, model and the keys below.
	MetadataOwn = "warmroute"

	// KeyReason and KeyWithheld are keys in MetadataOwn. Every request that warmroute has
	// seen has a reason.
	KeyReason   = "reason"
	KeyWithheld = "withheld"

	// KeyPrompt and KeyPredicted hold, in MetadataOwn, the number of the prompt's tokens,
	// and the number of tokens that are predicted to be cached on the first named replica.
	KeyPrompt    = "prompt_tokens"
	KeyPredicted = "predicted_tokens"

	// KeyRank holds, in MetadataOwn, the value of HeaderRank. It is absent without the header.
	KeyRank = "rank"

	// KeyMatch holds, in MetadataOwn, how the predicted tokens are known: reported, history or
	// text. It is absent if there are none.
	KeyMatch = "match"

	// KeyLoads holds, in MetadataOwn, an object with what that replica is expected to load of
	// the prompt from below its GPU: the number of tokens in each place ("cpu", "storage",
	// "shared"), and the milliseconds that loading them takes, under the same name with
	// KeyMillis behind it. It is absent if there are none.
	KeyLoads  = "loads"
	KeyMillis = "_ms"

	// KeyUsage in MetadataOwn asks Envoy to read the usage of the answer: by its
	// shape (UsageDetected), or as that of a completion (UsageCompletions), which
	// has no shape of its own.
	KeyUsage         = "usage"
	UsageDetected    = "detected"
	UsageCompletions = "completions"

	// KeyDecision is, in MetadataOwn, the number of the decision's record. KeyReported
	// comes with KeyUsage: the prompt's tokens that the replica's events report as cached.
	KeyReported = "reported_tokens"
	KeyDecision = "decision"

	// MetadataUsage is the namespace of typed dynamic metadata with the usage of an
	// answer (envoy.data.ai.v3.TokenUsage), set by Envoy, read from its access log.
	MetadataUsage = "envoy.ai.token_usage"

	// TagFirstByte is the tag of an entry of Envoy's access log with the time from the
	// request to the first byte of the answer's body, in microseconds.
	TagFirstByte = "first_body_byte_us"

	// MetadataBody and KeyModel hold the model that a body names, for Envoy's routes:
	// set by warmroute for a model that it knows, otherwise by Envoy itself
	// (json_to_metadata).
	MetadataBody = "warmroute.body"
	KeyModel     = "model"

	// HeaderPrefiller names the replica with a request's prefill leg, for llm-d's sidecar in
	// front of the decode replica: "ip:port". Set by warmroute in prefill_decode mode header.
	HeaderPrefiller = "x-prefiller-host-port"

	// KeySplit in MetadataOwn says whether another replica computed the prompt, and if not,
	// why; it is absent where no request is split. KeyPrefill has the address of the replica
	// with the prefill leg, and KeyPrefillCached the tokens that it took from its cache, if it
	// has said so.
	KeySplit         = "split"
	KeyPrefill       = "prefill"
	KeyPrefillCached = "prefill_cached_tokens"

	// MetadataSplit has what Envoy puts into the body of a request whose prefill ran
	// elsewhere, in one attempt and only if that goes to the replica KeySplitTo:
	// KeySplitParams at position KeySplitAt of a body of KeySplitSize bytes. Set by
	// warmroute in prefill_decode mode pull. Envoy adds the key "sent".
	MetadataSplit  = "warmroute.split"
	KeySplitTo     = "to"
	KeySplitAt     = "at"
	KeySplitSize   = "size"
	KeySplitParams = "params"

	// HeaderRetry marks an answer, inside Envoy, that is retried as a plain request: an
	// error of a replica that was to pull blocks.
	HeaderRetry = "x-warmroute-retry"

	// KeyWait and KeySplitBody are gRPC metadata of an ext_proc stream, by which Envoy says
	// that it waits for a prefill elsewhere: for at most so many milliseconds, for bodies of
	// at most so many bytes.
	KeyWait      = "x-warmroute-wait-ms"
	KeySplitBody = "x-warmroute-split-bytes"

	// KeyHold is gRPC metadata of an ext_proc stream, by which Envoy says that it waits for a held
	// request: for at most so many milliseconds.
	KeyHold = "x-warmroute-hold-ms"

	// KeyPriority holds, in MetadataOwn, the value of HeaderPriority. It is absent where no requests
	// are held. HeaderPriority is a request header that a vLLM with --scheduling-policy priority
	// obeys, the lowest number first. Envoy's routes set it, and remove a client's own.
	KeyPriority    = "priority"
	HeaderPriority = "x-vllm-priority"

	// MetadataSubset and KeySubset hold the gateway's restriction of the pick to
	// some endpoints. Set by the gateway, read by warmroute on the headers
	// message and kept from there on.
	MetadataSubset = "envoy.lb.subset_hint"
	KeySubset      = "x-gateway-destination-endpoint-subset"
)

// Owned lists the request headers only warmroute may set. Configurations
// remove a client's own copies ahead of ext_proc.
var Owned = [...]string{HeaderDestination, HeaderRank}

// OwnedLegs lists the request headers that tell llm-d's sidecar which other replicas to
// call. Configurations with prefill and decode apart remove a client's own copies, too.
var OwnedLegs = [...]string{HeaderPrefiller, "x-encoder-hosts-ports", "x-data-parallel-host-port", "x-kv-cache-source-host-port"}

// EngineHeaders lists the request headers of clients that vLLM obeys: one precedes the
// body's priority, the other names a session. Configurations remove them.
var EngineHeaders = [...]string{HeaderPriority, "x-session-id"}
