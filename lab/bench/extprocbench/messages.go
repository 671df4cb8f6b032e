package main

import (
	"fmt"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

func header(k, v string) *corev3.HeaderValue {
	return &corev3.HeaderValue{Key: k, RawValue: []byte(v)}
}

func requestHeaders(path string, length int, n uint64) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: &extproc.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			header(":authority", "llm.example"), header(":path", path), header(":method", "POST"), header(":scheme", "http"),
			header("user-agent", "openai-python/1.99.0"), header("accept", "application/json"),
			header("content-type", "application/json"), header("content-length", strconv.Itoa(length)),
			header("authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
			header("x-forwarded-proto", "http"), header("x-request-id", fmt.Sprintf("%08x-0000-4000-8000-%012x", n>>32, n)),
		}},
	}}}
}

func requestBody(b []byte, end bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
		RequestBody: &extproc.HttpBody{Body: b, EndOfStream: end},
	}}
}

func responseHeaders(stream bool) *extproc.ProcessingRequest {
	ct := "application/json"
	if stream {
		ct = "text/event-stream; charset=utf-8"
	}
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extproc.HttpHeaders{
		Headers: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
			header(":status", "200"), header("server", "uvicorn"), header("content-type", ct),
		}},
	}}}
}

func responseBody(i int, last bool) *extproc.ProcessingRequest {
	b := fmt.Sprintf(`data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"fake-model",`+
		`"choices":[{"index":0,"delta":{"content":" token%d"},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	if last {
		b = `{"id":"chatcmpl-0","object":"chat.completion","model":"fake-model","choices":[{"index":0,"message":{"role":"assistant",` +
			`"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102}}`
		if i > 0 {
			b = "data: " + b + "\n\ndata: [DONE]\n\n"
		}
	}
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(b), EndOfStream: last},
	}}
}
