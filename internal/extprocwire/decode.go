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

// Incoming is a ProcessingRequest with memory for the usual parts of one. The next
// message that is read into it takes that memory, but not that of its strings and
// its body.
type Incoming struct {
	extprocv3.ProcessingRequest

	requestHeaders  extprocv3.ProcessingRequest_RequestHeaders
	responseHeaders extprocv3.ProcessingRequest_ResponseHeaders
	requestBody     extprocv3.ProcessingRequest_RequestBody

	headers   extprocv3.HttpHeaders
	body      extprocv3.HttpBody
	headerMap corev3.HeaderMap
	list      [typicalHeaders]*corev3.HeaderValue
	values    [typicalHeaders]corev3.HeaderValue
	used      int // of values
}

// typicalHeaders is the number of headers that have memory: as many as a request to
// a model server has.
const typicalHeaders = 24

// Clear makes m empty, so that it keeps nothing alive.
func (m *Incoming) Clear() {
	m.Reset()
	m.requestHeaders.RequestHeaders, m.responseHeaders.ResponseHeaders, m.requestBody.RequestBody = nil, nil, nil
	m.headers.Headers, m.headers.EndOfStream = nil, false
	m.body.Body, m.body.EndOfStream = nil, false
	m.headerMap.Headers = nil
	clear(m.list[:])
	for i := range m.values[:m.used] {
		h := &m.values[i]
		h.Key, h.Value, h.RawValue = "", "", nil
	}
	m.used = 0
}

// decodeRequest reads b into m, which is empty, and keeps b. It returns false, with
// m in any state, for anything unusual: other fields, a field given twice, bytes
// that are no message, text that is not UTF-8.
func decodeRequest(m *Incoming, b []byte) bool {
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

func decodePhase(m *Incoming, num protowire.Number, v []byte) bool {
	switch num {
	case fieldRequestBody:
		m.requestBody.RequestBody, m.Request = &m.body, &m.requestBody
		return decodeBody(&m.body, v)
	case fieldRequestHeaders:
		m.requestHeaders.RequestHeaders, m.Request = &m.headers, &m.requestHeaders
	default:
		m.responseHeaders.ResponseHeaders, m.Request = &m.headers, &m.responseHeaders
	}
	return m.decodeHeaders(v)
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

func (m *Incoming) decodeHeaders(b []byte) bool {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch {
		case num == fieldHeaderMap && kind == protowire.BytesType && m.headers.Headers == nil:
			v, k := protowire.ConsumeBytes(b)
			if n = k; n < 0 {
				return false
			}
			m.headers.Headers = &m.headerMap
			if !m.decodeHeaderMap(v) {
				return false
			}
		case num == fieldHeadersEnd && kind == protowire.VarintType:
			m.headers.EndOfStream, n = flag(b)
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

func (m *Incoming) decodeHeaderMap(b []byte) bool {
	all := m.list[:0]
	var more []corev3.HeaderValue
	for len(b) > 0 {
		num, v, rest, ok := bytesField(b)
		if !ok || num != fieldHeaders {
			return false
		}
		var h *corev3.HeaderValue
		if m.used < len(m.values) {
			h = &m.values[m.used]
			m.used++
		} else {
			if len(more) == 0 {
				more = make([]corev3.HeaderValue, typicalHeaders)
			}
			h, more = &more[0], more[1:]
		}
		if !decodeHeader(h, v) {
			return false
		}
		all, b = append(all, h), rest
	}
	m.headerMap.Headers = all
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

// text returns b as a string that shares its memory, which nobody writes to: only
// the memory of body messages is used again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func flag(b []byte) (bool, int) {
	v, n := protowire.ConsumeVarint(b)
	return v != 0, n
}
