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
	f := fields{rest: b}
	for f.next() {
		switch {
		case !f.isBytes:
			return false
		case f.num == fieldRequestHeaders || f.num == fieldResponseHeaders || f.num == fieldRequestBody:
			if m.Request != nil || !decodePhase(m, f.num, f.bytes) {
				return false
			}
		case f.num == fieldMetadata && m.MetadataContext == nil:
			m.MetadataContext = new(corev3.Metadata)
			if proto.Unmarshal(f.bytes, m.MetadataContext) != nil {
				return false
			}
		case f.num == fieldProtocolConfig && m.ProtocolConfig == nil:
			m.ProtocolConfig = new(extprocv3.ProtocolConfiguration)
			if proto.Unmarshal(f.bytes, m.ProtocolConfig) != nil {
				return false
			}
		default:
			return false
		}
	}
	return !f.malformed
}

// fields reads a message field by field: those of bytes, and numbers.
type fields struct {
	rest      []byte
	malformed bool // what follows is neither

	num     protowire.Number
	isBytes bool
	bytes   []byte
	number  uint64
}

// next reads a field, and reports whether there is one.
func (f *fields) next() bool {
	if len(f.rest) == 0 {
		return false
	}
	num, kind, n := protowire.ConsumeTag(f.rest)
	if f.num, f.isBytes = num, kind == protowire.BytesType; n < 0 || !f.isBytes && kind != protowire.VarintType {
		f.malformed = true
		return false
	}
	f.rest = f.rest[n:]
	if f.isBytes {
		f.bytes, n = protowire.ConsumeBytes(f.rest)
	} else {
		f.number, n = protowire.ConsumeVarint(f.rest)
	}
	if f.malformed = n < 0; f.malformed {
		return false
	}
	f.rest = f.rest[n:]
	return true
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
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num == fieldBody && f.isBytes && m.Body == nil:
			m.Body = f.bytes
		case f.num == fieldBodyEnd && !f.isBytes:
			m.EndOfStream = f.number != 0
		default:
			return false
		}
	}
	if len(m.Body) == 0 {
		m.Body = nil // as the protobuf library leaves it
	}
	return !f.malformed
}

func (m *Incoming) decodeHeaders(b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		switch {
		case f.num == fieldHeaderMap && f.isBytes && m.headers.Headers == nil:
			m.headers.Headers = &m.headerMap
			if !m.decodeHeaderMap(f.bytes) {
				return false
			}
		case f.num == fieldHeadersEnd && !f.isBytes:
			m.headers.EndOfStream = f.number != 0
		default:
			return false
		}
	}
	return !f.malformed
}

func (m *Incoming) decodeHeaderMap(b []byte) bool {
	all := m.list[:0]
	var more []corev3.HeaderValue
	f := fields{rest: b}
	for f.next() {
		if f.num != fieldHeaders || !f.isBytes {
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
		if !decodeHeader(h, f.bytes) {
			return false
		}
		all = append(all, h)
	}
	m.headerMap.Headers = all
	return !f.malformed
}

func decodeHeader(h *corev3.HeaderValue, b []byte) bool {
	f := fields{rest: b}
	for f.next() {
		v := f.bytes
		switch {
		case !f.isBytes:
			return false
		case f.num == fieldHeaderKey && h.Key == "" && utf8.Valid(v):
			h.Key = text(v)
		case f.num == fieldHeaderValue && h.Value == "" && utf8.Valid(v):
			h.Value = text(v)
		case f.num == fieldHeaderRawValue && h.RawValue == nil:
			if len(v) > 0 {
				h.RawValue = v[:len(v):len(v)]
			}
		default:
			return false
		}
	}
	return !f.malformed
}

// text returns b as a string that shares its memory, which nobody writes to: only
// the memory of body messages is used again.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
