package filter

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"warmroute/envoy"
	"warmroute/internal/decision"
)

// The constant ProcessingResponses. Streams share them: they must not be changed.
var (
	plainRequestHeaders   = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}}
	plainRequestBody      = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
	plainRequestTrailers  = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
	plainResponseHeaders  = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
	plainResponseBody     = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
	plainResponseTrailers = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
)

// noMore is the mode of a request of which Envoy shall send nothing more. It needs
// allow_mode_override.
var noMore = &modev3.ProcessingMode{
	RequestHeaderMode: modev3.ProcessingMode_SKIP, ResponseHeaderMode: modev3.ProcessingMode_SKIP,
	RequestTrailerMode: modev3.ProcessingMode_SKIP, ResponseTrailerMode: modev3.ProcessingMode_SKIP,
}

// withoutBody is r with that mode. Streams share r.
func withoutBody(r *extprocv3.ProcessingResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: r.Response, DynamicMetadata: r.DynamicMetadata, ModeOverride: noMore}
}

// chunkLimit bounds the body bytes of one answer: ext_proc's streamed answers may
// hold 64 KiB, and some gateways cap the message there.
const chunkLimit = 62000

// bodyHint answers the request headers, the body and the trailers with d's hint
// and the body.
func bodyHint(d *decision.Decision, body []byte, like *hint) *extprocv3.ProcessingResponse {
	h := &hint{sidecar: like.sidecar, request: like.request}
	common := &extprocv3.CommonResponse{
		Status:       extprocv3.CommonResponse_CONTINUE_AND_REPLACE,
		BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: body}},
	}
	if h.mutate(d) {
		common.HeaderMutation = &h.mutation
	}
	h.response.Response = &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}}
	return &h.response
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
	}
}

// appendChunks appends the answers that return body bytes unchanged.
func appendChunks(out []*extprocv3.ProcessingResponse, body []byte, end, request bool) []*extprocv3.ProcessingResponse {
	for {
		n := min(len(body), chunkLimit)
		rest := body[n:]
		out = append(out, chunk(body[:n], end && len(rest) == 0, request))
		if body = rest; len(body) == 0 {
			return out
		}
	}
}

func chunk(body []byte, end, request bool) *extprocv3.ProcessingResponse {
	common := &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
		BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
			StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body, EndOfStream: end},
		}},
	}}
	if request {
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: common}}
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: common}}
}

// immediate ends the request with an HTTP status and the reason as its text.
// Endpoint-picker mode only.
func immediate(status typev3.StatusCode, reason decision.Reason) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{
			Status: &typev3.HttpStatus{Code: status}, Body: []byte("warmroute: " + string(reason) + "\n"),
			Details: "warmroute_" + string(reason), // Envoy's response code details, for access logs
		},
	}}
}

// reasonHeader answers response headers with the code of a decision for the client.
func reasonHeader(code string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{
			SetHeaders: []*corev3.HeaderValueOption{overwrite(envoy.HeaderReason, code)},
		}},
	}}}
}
