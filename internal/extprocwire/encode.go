package extprocwire

import (
	"math"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
)

// Field numbers of the answers.
const (
	fieldAnswerRequestHeaders  = 1 // ProcessingResponse
	fieldAnswerResponseHeaders = 2
	fieldAnswerRequestBody     = 3
	fieldAnswerResponseBody    = 4
	fieldDynamicMetadata       = 8

	fieldCommon            = 1 // HeadersResponse, BodyResponse
	fieldHeaderMutation    = 2 // CommonResponse
	fieldBodyMutation      = 3
	fieldSetHeaders        = 1 // HeaderMutation
	fieldOptionHeader      = 1 // HeaderValueOption
	fieldOptionAction      = 3
	fieldStreamedResponse  = 3 // BodyMutation
	fieldStreamedBody      = 1 // StreamedBodyResponse
	fieldStreamedEnd       = 2
	fieldStructFields      = 1 // Struct
	fieldMapKey            = 1
	fieldMapValue          = 2
	fieldValueNumber       = 2 // Value
	fieldValueString       = 3
	fieldValueStruct       = 5
	encodedHintSize        = 384 // a hint with three replicas in header and metadata, and its values for access logs
	mostFields             = 15  // of a struct that this package writes
	overwriteAction        = uint64(corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	wireBytes, wireVarint  = protowire.BytesType, protowire.VarintType
	oneByteLength          = 1 << 7
	encodedChunkHeaderSize = 32
)

// plain holds the bytes of the answers that only continue the stream, by field:
// an empty message. They must not be changed.
var plain = func() (all [fieldAnswerResponseBody + 1]mem.Buffer) {
	for num := range all {
		all[num] = mem.SliceBuffer(protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(num), wireBytes), nil))
	}
	return all
}()

// encodeResponse writes the answers of every request: plain ones, hints, the reason,
// chunks. It returns false for others.
func encodeResponse(r *response) (mem.BufferSlice, bool) {
	num, common := phaseOf(r)
	if num == 0 || !usual(r) {
		return nil, false
	}
	if common == nil && r.DynamicMetadata == nil {
		return mem.BufferSlice{plain[num]}, true
	}
	if s := common.GetBodyMutation().GetStreamedResponse(); s != nil {
		if !bare(common) || common.HeaderMutation != nil || r.DynamicMetadata != nil || s.EndOfStreamWithoutMessage || s.GrpcMessageCompressed || s.DrainComplete {
			return nil, false
		}
		return encodeChunk(num, s), true
	}
	if common != nil && (!bare(common) || common.BodyMutation != nil || !simple(common.HeaderMutation)) {
		return nil, false
	}
	b := make([]byte, 0, encodedHintSize)
	if r.DynamicMetadata != nil { // goes first: the library writes oneofs last
		var ok bool
		if b, ok = appendMetadata(b, r.DynamicMetadata); !ok {
			return nil, false
		}
	}
	b = nested(b, num, func(b []byte) []byte {
		if common == nil {
			return b
		}
		return nested(b, fieldCommon, func(b []byte) []byte {
			return nested(b, fieldHeaderMutation, func(b []byte) []byte {
				for _, o := range common.HeaderMutation.SetHeaders {
					b = appendHeaderOption(b, o)
				}
				return b
			})
		})
	})
	return mem.BufferSlice{mem.SliceBuffer(b)}, true
}

// phaseOf returns the answer's field, 0 for one that this package does not write, and its content,
// nil for none.
func phaseOf(r *response) (protowire.Number, *extprocv3.CommonResponse) {
	switch v := r.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return fieldAnswerRequestHeaders, v.RequestHeaders.GetResponse()
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return fieldAnswerResponseHeaders, v.ResponseHeaders.GetResponse()
	case *extprocv3.ProcessingResponse_RequestBody:
		return fieldAnswerRequestBody, v.RequestBody.GetResponse()
	case *extprocv3.ProcessingResponse_ResponseBody:
		return fieldAnswerResponseBody, v.ResponseBody.GetResponse()
	}
	return 0, nil
}

// usual reports whether r has nothing besides its phase and dynamic metadata.
func usual(r *response) bool {
	return r.ModeOverride == nil && r.OverrideMessageTimeout == nil && r.ServerWindowUpdate == nil && len(r.TypedDynamicMetadata) == 0 &&
		!r.RequestDrain && !r.RequestDrainRequests && !r.RequestDrainResponses //nolint:staticcheck // deprecated, and to be written all the same
}

// bare reports whether c has nothing besides its mutations.
func bare(c *extprocv3.CommonResponse) bool {
	return c.Status == 0 && c.Trailers == nil && !c.ClearRouteCache
}

// simple reports whether a mutation only overwrites headers.
func simple(h *extprocv3.HeaderMutation) bool {
	if h == nil || len(h.RemoveHeaders) > 0 {
		return false
	}
	for _, o := range h.SetHeaders {
		//nolint:staticcheck // Append is deprecated, and to be written all the same
		if o.Append != nil || o.KeepEmptyValue || uint64(o.AppendAction) != overwriteAction || o.Header == nil || o.Header.Value != "" {
			return false
		}
	}
	return true
}

// appendTag appends the tag of a field, which is one byte: all fields written here have
// numbers below 16.
func appendTag(b []byte, num protowire.Number, typ protowire.Type) []byte {
	return append(b, byte(protowire.EncodeTag(num, typ)))
}

// appendLength appends the length of a field's content.
func appendLength(b []byte, n int) []byte {
	if n < oneByteLength {
		return append(b, byte(n))
	}
	return protowire.AppendVarint(b, uint64(n))
}

func appendString(b []byte, s string) []byte { return append(appendLength(b, len(s)), s...) }

// nested appends a message field whose content body appends. It inserts the length
// afterwards.
func nested(b []byte, num protowire.Number, body func([]byte) []byte) []byte {
	b = appendTag(b, num, wireBytes)
	at := len(b)
	b = body(append(b, 0))
	n := len(b) - at - 1
	if n < oneByteLength {
		b[at] = byte(n)
		return b
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[at+1+more:], b[at+1:at+1+n])
	protowire.AppendVarint(b[:at], uint64(n))
	return b
}

func appendHeaderOption(b []byte, o *corev3.HeaderValueOption) []byte {
	return nested(b, fieldSetHeaders, func(b []byte) []byte {
		b = nested(b, fieldOptionHeader, func(b []byte) []byte {
			b = appendText(b, fieldHeaderKey, o.Header.Key)
			if len(o.Header.RawValue) > 0 {
				b = appendTag(b, fieldHeaderRawValue, wireBytes)
				b = protowire.AppendBytes(b, o.Header.RawValue)
			}
			return b
		})
		b = appendTag(b, fieldOptionAction, wireVarint)
		return protowire.AppendVarint(b, overwriteAction)
	})
}

func appendText(b []byte, num protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	b = appendTag(b, num, wireBytes)
	return appendString(b, s)
}

func appendMetadata(b []byte, s *structpb.Struct) (_ []byte, ok bool) {
	b = nested(b, fieldDynamicMetadata, func(b []byte) []byte {
		b, ok = appendStruct(b, s)
		return b
	})
	return b, ok
}

// member is one field of a struct.
type member struct {
	name  string
	value *structpb.Value
}

// appendStruct writes a struct of a few fields, strings, numbers and other such
// structs, by the order of their names, as the library does with its option for
// deterministic output.
func appendStruct(b []byte, s *structpb.Struct) ([]byte, bool) {
	var room [mostFields]member
	if len(s.Fields) == 0 || len(s.Fields) > mostFields {
		return b, false
	}
	members := room[:0]
	for name, value := range s.Fields {
		members = append(members, member{name, value})
	}
	slices.SortFunc(members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for i := range members {
		var ok bool
		if b, ok = appendMember(b, &members[i]); !ok {
			return b, false
		}
	}
	return b, true
}

// appendMember appends an entry of a struct's map.
func appendMember(b []byte, m *member) (_ []byte, ok bool) {
	b = nested(b, fieldStructFields, func(b []byte) []byte {
		b = appendString(appendTag(b, fieldMapKey, wireBytes), m.name)
		return nested(b, fieldMapValue, func(b []byte) []byte {
			b, ok = appendValue(b, m.value)
			return b
		})
	})
	return b, ok
}

func appendValue(b []byte, v *structpb.Value) (_ []byte, ok bool) {
	switch v := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		b = appendTag(b, fieldValueString, wireBytes)
		return appendString(b, v.StringValue), true
	case *structpb.Value_NumberValue:
		b = appendTag(b, fieldValueNumber, protowire.Fixed64Type)
		return protowire.AppendFixed64(b, math.Float64bits(v.NumberValue)), true
	case *structpb.Value_StructValue:
		b = nested(b, fieldValueStruct, func(b []byte) []byte {
			b, ok = appendStruct(b, v.StructValue)
			return b
		})
		return b, ok
	}
	return b, false
}

// encodeChunk writes an answer that returns a chunk of a body: the chunk's bytes
// unchanged, behind the fields that precede them.
func encodeChunk(num protowire.Number, s *extprocv3.StreamedBodyResponse) mem.BufferSlice {
	end := 0
	if s.EndOfStream {
		end = 2
	}
	head := 0
	if len(s.Body) > 0 {
		head = 1 + protowire.SizeVarint(uint64(len(s.Body)))
	}
	inner := head + len(s.Body) + end // StreamedBodyResponse
	sizes := [...]struct {
		num protowire.Number
		n   int
	}{3: {fieldStreamedResponse, inner}, 2: {num: fieldBodyMutation}, 1: {num: fieldCommon}, 0: {num: num}}
	for i := len(sizes) - 2; i >= 0; i-- {
		sizes[i].n = 1 + protowire.SizeBytes(sizes[i+1].n)
	}
	b := make([]byte, 0, encodedChunkHeaderSize)
	for _, s := range sizes {
		b = appendTag(b, s.num, wireBytes)
		b = protowire.AppendVarint(b, uint64(s.n))
	}
	out := mem.BufferSlice{}
	if len(s.Body) > 0 {
		b = appendTag(b, fieldStreamedBody, wireBytes)
		b = appendLength(b, len(s.Body))
		out = append(out, mem.SliceBuffer(b), mem.SliceBuffer(s.Body))
		b = nil
	}
	if s.EndOfStream {
		b = appendTag(b, fieldStreamedEnd, wireVarint)
		b = protowire.AppendVarint(b, 1)
	}
	if len(b) > 0 {
		out = append(out, mem.SliceBuffer(b))
	}
	return out
}
