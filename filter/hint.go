package filter

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"warmroute/envoy"
	"warmroute/internal/decision"
)

// hint is an answer with a decision in one piece of memory. It must be sent
// before the next answer is built in it.
type hint struct {
	response  response
	inHeaders extprocv3.ProcessingResponse_RequestHeaders
	inBody    extprocv3.ProcessingResponse_RequestBody
	headers   extprocv3.HeadersResponse
	body      extprocv3.BodyResponse
	common    extprocv3.CommonResponse
	mutation  extprocv3.HeaderMutation
	options   [3]corev3.HeaderValueOption
	values    [3]corev3.HeaderValue
	set       [3]*corev3.HeaderValueOption
	sidecar   bool // the destination's sidecar sends the prefill leg
	request   headerSize
	metadata  answerMetadata
}

// ofHeaders answers the request headers with d's hint.
func (h *hint) ofHeaders(d *decision.Decision) *response { return h.of(d, plainRequestHeaders) }

// ofBody answers a buffered request body with d's hint.
func (h *hint) ofBody(d *decision.Decision) *response { return h.of(d, plainRequestBody) }

func (h *hint) of(d *decision.Decision, plain *response) *response {
	h.response.Response = plain.Response
	if h.mutate(d) {
		h.headers.Response, h.body.Response = &h.common, &h.common
		h.inHeaders.RequestHeaders, h.inBody.RequestBody = &h.headers, &h.body
		if h.response.Response = &h.inHeaders; plain == plainRequestBody {
			h.response.Response = &h.inBody
		}
	}
	return &h.response
}

// headerSize is the number and the size of a request's headers.
type headerSize struct{ fields, bytes int }

func (s *headerSize) add(hv *corev3.HeaderValue) {
	s.fields++
	s.bytes += len(hv.GetKey()) + len(hv.GetRawValue()) + len(hv.GetValue())
}

// Envoy's default limits, and what the headers of a hint take at most.
var (
	mostHeaders = headerSize{100, 60 << 10}
	hintHeaders = headerSize{3, 1 << 10}
)

// fits reports whether Envoy accepts a mutation that adds so much.
func (s headerSize) fits(more headerSize) bool {
	return s.fields+more.fields <= mostHeaders.fields && s.bytes+more.bytes <= mostHeaders.bytes
}

// mutate sets the metadata and, unless there is no destination, the headers, but for a request near
// Envoy's limits, which answers 500 to a mutation beyond them. It reports
// whether the answer has a mutation of headers. An answer with a model always has one,
// though it may set no header: Envoy chooses the route again for no other answer.
func (h *hint) mutate(d *decision.Decision) bool {
	h.response.DynamicMetadata = h.metadata.of(d)
	set := h.set[:0]
	if d.Chosen != "" {
		set = append(set, h.overwrite(0, envoy.HeaderDestination, d.Chosen))
		if d.Rank != "" {
			set = append(set, h.overwrite(1, envoy.HeaderRank, d.Rank))
		}
		if d.Split != nil && h.sidecar {
			set = append(set, h.overwrite(2, envoy.HeaderPrefiller, d.Split.Prefill))
		}
	}
	if !h.request.fits(hintHeaders) {
		set = set[:0]
	}
	h.mutation.SetHeaders, h.common.HeaderMutation = set, &h.mutation
	return (d.Chosen != "" || d.Model != "") && h.request.fits(headerSize{})
}

func (h *hint) overwrite(i int, name, value string) *corev3.HeaderValueOption {
	v, o := &h.values[i], &h.options[i]
	v.Key, v.RawValue = name, append(v.RawValue[:0], value...)
	o.Header, o.AppendAction = v, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	return o
}
