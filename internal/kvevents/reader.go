package kvevents

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// ReaderOptions say how to read payloads outside of a subscription.
type ReaderOptions struct {
	Tenant, Model string
	Adapter       Adapter            // of the publisher's engine; nil is vLLM's
	Hashes        []*prefixhash.VLLM // the chains that the publisher may compute
	Unit          int                // tokens per hash, when given
	Presume       bool               // assume the first of Hashes until a block disproves it
}

// Reader turns payloads into index batches as a subscription does, for callers
// with another source of payloads. It is not safe for concurrent use.
type Reader struct {
	decoder   Decoder
	converter converter
}

// NewReader returns a reader of one publisher's payloads.
func NewReader(o ReaderOptions) *Reader {
	if o.Adapter == nil {
		o.Adapter = VLLM()
	}
	return newReader(o, index.SchemeTokens)
}

func newReader(o ReaderOptions, scheme string) *Reader {
	return &Reader{Decoder{Adapter: o.Adapter}, converter{tenant: o.Tenant, model: o.Model, scheme: scheme, adapter: o.Adapter,
		chains: chainFinder{candidates: o.Hashes, unit: o.Unit, presume: o.Presume}}}
}

// shrink drops the buffers that a large batch has grown.
func (r *Reader) shrink() {
	r.decoder = Decoder{SkipTokens: r.decoder.SkipTokens, Adapter: r.decoder.Adapter}
	c := &r.converter
	r.converter = converter{tenant: c.tenant, model: c.model, scheme: c.scheme, adapter: c.adapter, chains: c.chains, doubts: c.doubts}
}

// Read decodes a payload. The batch is valid until the next call; the caller sets
// its holder and incarnation.
func (r *Reader) Read(payload []byte) (*index.Batch, error) {
	b, err := r.decoder.Decode(payload)
	if err != nil {
		return nil, err
	}
	out, _ := r.converter.convert(b)
	return out, nil
}
