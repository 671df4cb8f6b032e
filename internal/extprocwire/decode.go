package extprocwire

import (
	"unicode/utf8"
	"unsafe"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Field numbers of envoy.service.ext_proc.v3 and envoy.config.core.v3.
const (
	fieldRequestHeaders  = 2 // ProcessingRequest
	fieldResponseHeaders = 3
	fieldRequestBody     = 4
	fieldMetadata        = 8
	fieldProtocolConfig  = 11

	fieldHeaderMap      = 1 // HttpHeaders
	fieldHeadersEnd     = 3
	fieldHeaders        = 1 // HeaderMap
	fieldHeaderKey      = 1 // HeaderValue
	fieldHeaderValue    = 2
	fieldHeaderRawValue = 3
	fieldBody           = 1 // HttpBody
	fieldBodyEnd        = 2
)

// decodeRequest reads b into m, which is empty, and keeps b. It returns false,
// with m in any state, for what it does not know: other fields, a field given
// twice, bytes that are no message, text that is not UTF-8.
func decodeRequest(m *request, b []byte) bool {
	for len(b) > 0 {
		num, v, rest, ok := bytesField(b)
		if !ok {
			return false
		}
		b = rest
		switch num {
		case fieldRequestHeaders, fieldResponseHeaders, fieldRequestBody:
			if m.Request != nil || !decodePhase(m, num, v) {
				return false
			}
		case fieldMetadata:
			if m.MetadataContext != nil {
				return false
			}
			m.MetadataContext = new(corev3.Metadata)
			if proto.Unmarshal(v, m.MetadataContext) != nil {
				return false
			}
		case fieldProtocolConfig:
			if m.ProtocolConfig != nil {
				return false
			}
			m.ProtocolConfig = new(extprocv3.ProtocolConfiguration)
			if proto.Unmarshal(v, m.ProtocolConfig) != nil {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// bytesField reads one length-delimited field.
func bytesField(b []byte) (num protowire.Number, v, rest []byte, ok bool) {
	num, kind, n := protowire.ConsumeTag(b)
	if n < 0 || kind != protowire.BytesType {
		return 0, nil, nil, false
	}
	b = b[n:]
	v, n = protowire.ConsumeBytes(b)
	if n < 0 {
		return 0, nil, nil, false
	}
	return num, v, b[n:], true
}

func decodePhase(m *request, num protowire.Number, v []byte) bool {
	if num == fieldRequestBody {
		body := new(extprocv3.HttpBody)
		m.Request = &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}
		return decodeBody(body, v)
	}
	h := new(extprocv3.HttpHeaders)
	if num == fieldRequestHeaders {
		m.Request = &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: h}
	} else {
		m.Request = &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}
	}
	return decodeHeaders(h, v)
}

func decodeBody(m *extprocv3.HttpBody, b []byte) bool {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case num == fieldBody && kind == protowire.BytesType && m.Body == nil:
			m.Body, n = protowire.ConsumeBytes(b)
		case num == fieldBodyEnd && kind == protowire.VarintType:
			m.EndOfStream, n = flag(b)
		default:
			return false
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	if len(m.Body) == 0 {
		m.Body = nil // as the protobuf library leaves it
	}
	return true
}

func decodeHeaders(m *extprocv3.HttpHeaders, b []byte) bool {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case num == fieldHeaderMap && kind == protowire.BytesType && m.Headers == nil:
			v, k := protowire.ConsumeBytes(b)
			if n = k; n < 0 {
				return false
			}
			m.Headers = new(corev3.HeaderMap)
			if !decodeHeaderMap(m.Headers, v) {
				return false
			}
		case num == fieldHeadersEnd && kind == protowire.VarintType:
			m.EndOfStream, n = flag(b)
		default:
			return false
		}
		if n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

// typicalHeaders is how many headers memory is taken for at a time: what a
// request to a model server has.
const typicalHeaders = 16

func decodeHeaderMap(m *corev3.HeaderMap, b []byte) bool {
	var room []corev3.HeaderValue
	m.Headers = make([]*corev3.HeaderValue, 0, typicalHeaders)
	for len(b) > 0 {
		num, v, rest, ok := bytesField(b)
		if !ok || num != fieldHeaders {
			return false
		}
		if len(room) == 0 {
			room = make([]corev3.HeaderValue, typicalHeaders)
		}
		if !decodeHeader(&room[0], v) {
			return false
		}
		m.Headers = append(m.Headers, &room[0])
		room, b = room[1:], rest
	}
	return true
}

func decodeHeader(h *corev3.HeaderValue, b []byte) bool {
	for len(b) > 0 {
		num, v, rest, ok := bytesField(b)
		if !ok {
			return false
		}
		b = rest
		switch {
		case num == fieldHeaderKey && h.Key == "" && utf8.Valid(v):
			h.Key = text(v)
		case num == fieldHeaderValue && h.Value == "" && utf8.Valid(v):
			h.Value = text(v)
		case num == fieldHeaderRawValue && h.RawValue == nil:
			if len(v) > 0 {
				h.RawValue = v[:len(v):len(v)]
			}
		default:
			return false
		}
	}
	return true
}

// text is b as a string that shares its memory, which is never written to: only
// the memory of body messages is used again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func flag(b []byte) (bool, int) {
	v, n := protowire.ConsumeVarint(b)
	return v != 0, n
}
