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
	return &Reader{decoder: Decoder{Adapter: o.Adapter}, converter: converter{tenant: o.Tenant, model: o.Model, scheme: index.SchemeTokens, adapter: o.Adapter,
		chains: chainFinder{candidates: o.Hashes, unit: o.Unit, presume: o.Presume}}}
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
