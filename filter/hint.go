package filter

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"warmroute/envoy"
	"warmroute/internal/decision"
)

// hint is an answer with a decision in one piece of memory. The next one that is
// built there replaces it: it must have been sent by then.
type hint struct {
	response  response
	inHeaders extprocv3.ProcessingResponse_RequestHeaders
	inBody    extprocv3.ProcessingResponse_RequestBody
	headers   extprocv3.HeadersResponse
	body      extprocv3.BodyResponse
	common    extprocv3.CommonResponse
	mutation  extprocv3.HeaderMutation
	options   [2]corev3.HeaderValueOption
	values    [2]corev3.HeaderValue
	set       [2]*corev3.HeaderValueOption
	metadata  answerMetadata
}

// ofHeaders answers the request headers with d's hint.
func (h *hint) ofHeaders(d *decision.Decision) *response {
	if d.Destination == "" && d.Model == "" {
		return reasonAnswer(&reasonHeaderAnswers, d.Reason, plainRequestHeaders)
	}
	if h.response.Response = plainRequestHeaders.Response; h.mutate(d) {
		h.headers.Response = &h.common
		h.inHeaders.RequestHeaders = &h.headers
		h.response.Response = &h.inHeaders
	}
	return &h.response
}

// ofBody answers a buffered request body with d's hint.
func (h *hint) ofBody(d *decision.Decision) *response {
	if d.Destination == "" && d.Model == "" {
		return reasonAnswer(&reasonBodyAnswers, d.Reason, plainRequestBody)
	}
	if h.response.Response = plainRequestBody.Response; h.mutate(d) {
		h.body.Response = &h.common
		h.inBody.RequestBody = &h.body
		h.response.Response = &h.inBody
	}
	return &h.response
}

// mutate sets the metadata and, unless there is no destination, the headers.
func (h *hint) mutate(d *decision.Decision) bool {
	h.response.DynamicMetadata = h.metadata.of(d)
	if d.Destination == "" {
		return false
	}
	set := append(h.set[:0], h.overwrite(0, envoy.HeaderDestination, d.Destination))
	if d.Rank != "" {
		set = append(set, h.overwrite(1, envoy.HeaderRank, d.Rank))
	}
	h.mutation.SetHeaders, h.common.HeaderMutation = set, &h.mutation
	return true
}

func (h *hint) overwrite(i int, name, value string) *corev3.HeaderValueOption {
	v, o := &h.values[i], &h.options[i]
	v.Key, v.RawValue = name, append(v.RawValue[:0], value...)
	o.Header, o.AppendAction = v, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	return o
}
