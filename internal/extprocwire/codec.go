package extprocwire

import (
	"sync"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

type (
	request  = extprocv3.ProcessingRequest
	response = extprocv3.ProcessingResponse
)

// Codec implements encoding.CodecV2. Give it to grpc.ForceServerCodecV2.
type Codec struct{ usual encoding.CodecV2 }

// NewCodec returns a Codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2(grpcproto.Name)} }

// Name implements encoding.CodecV2.
func (c Codec) Name() string { return grpcproto.Name }

// Marshal implements encoding.CodecV2.
func (c Codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		if out, ok := encodeResponse(r); ok {
			return out, nil
		}
	}
	return c.usual.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Incoming)
	if !ok {
		return c.usual.Unmarshal(data, v)
	}
	m.Clear()
	buf := bodyBuffer(data.Len())
	data.CopyTo(buf)
	if decodeRequest(m, buf) {
		return nil
	}
	m.Clear()
	return c.usual.Unmarshal(data, v)
}

const (
	// pooledLeast is the message size from which memory is used again: for
	// smaller messages a new allocation is as cheap.
	pooledLeast = 4 << 10
	// pooledMost bounds the memory of one idle buffer.
	pooledMost = 4 << 20
)

var bodies sync.Pool // *[]byte

// bodyBuffer returns n bytes.
func bodyBuffer(n int) []byte {
	if n >= pooledLeast {
		if b, _ := bodies.Get().(*[]byte); b != nil && cap(*b) >= n {
			return (*b)[:n]
		}
		return make([]byte, n, n+n/8) // the next body is a little longer
	}
	return make([]byte, n)
}

// Recycle gives the memory of a received body to a later one. The caller must
// be done with it.
func Recycle(body []byte) {
	if c := cap(body); c >= pooledLeast && c <= pooledMost {
		body = body[:0]
		bodies.Put(&body)
	}
}
