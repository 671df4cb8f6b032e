package kvevents

import (
	"regexp"
	"strings"

	"warmroute/index"
	"warmroute/prefixhash"
)

// sharedMedium reports whether a medium is one that several replicas read. vLLM's own
// "STORAGE" may be either.
func sharedMedium(medium string) bool {
	return strings.EqualFold(medium, "SHARED_STORAGE") || strings.EqualFold(medium, "OBJECT_STORE")
}

// SchemeEngine is the scheme of keys that are vLLM's own hashes. Blocks without a
// key of this project are kept under it too: their removals and children then
// find them, and no lookup of another scheme does.
const SchemeEngine = "engine"

var engineScheme = regexp.MustCompile(`^engine(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$`)

// IsEngineScheme reports whether a scheme's keys are an engine's own hashes:
// SchemeEngine, or "engine:NAME", which keeps engines apart whose hashes mean
// different things. NAME is 1 to 64 letters, digits, dots, hyphens and
// underscores.
func IsEngineScheme(scheme string) bool { return engineScheme.MatchString(scheme) }

// converter turns decoded batches into index batches; it reuses its buffers, so
// a batch is valid until the next call. Token ids and extra keys end here.
type converter struct {
	tenant, model, scheme string
	adapter               Adapter
	contents              []prefixhash.Content
	last                  []prefixhash.Content
	tokens                []uint32
	removed               []uint64
	chains                chainFinder
	doubts                doubts
	batch                 index.Batch
}

// convert fills the converter's batch with b's events.
func (c *converter) convert(b *Batch) (*index.Batch, Contents) {
	c.contents, c.removed = c.contents[:0], c.removed[:0]
	out := &c.batch
	out.Events, out.Shared = out.Events[:0], false
	n := Contents{UnknownEvents: uint64(b.Unknown)}
	out.Keying = c.chains.observe(b)
	for i := range b.Events {
		e := &b.Events[i]
		if e.Medium != "GPU" && !knownMedium(e.Medium) {
			b.strange("medium ", []byte(e.Medium))
		}
		switch e.Kind {
		case index.Cleared:
			if c.adapter.tier(e.Medium) != index.TierGPU || e.Group != 0 { // no engine sends such a one
				b.strange("AllBlocksCleared of a part of the cache, in ", []byte(e.Medium))
				continue
			}
			n.Clears++
			out.Events = append(out.Events, index.Event{Kind: index.Cleared})
		case index.Removed:
			n.BlocksRemoved += uint64(len(e.Hashes))
			c.remove(out, e)
		case index.Stored:
			tier := c.adapter.tier(e.Medium)
			n.BlocksStored += uint64(len(e.Hashes))
			out.Shared = out.Shared || tier == index.TierStorage && (e.Remote || sharedMedium(e.Medium))
			if connector, byHash := c.adapter.byHash(e, tier, c.scheme); byHash {
				if e.Placeholder() {
					n.Placeholders++
				}
				out.Events = append(out.Events, index.Event{Kind: index.Stored, Tier: tier, ByHash: true, Connector: connector, Hashes: e.Hashes,
					Scope: index.Scope{Tenant: c.tenant, Model: c.model, Scheme: c.scheme, BlockSize: e.BlockSize, Group: e.Group}})
				continue
			}
			scheme := c.scheme
			contents, last := c.contentsOf(e)
			if contents == nil && scheme == index.SchemeTokens && len(e.Hashes) > 0 {
				scheme = SchemeEngine
				n.Unkeyed++
			}
			out.Events = append(out.Events, index.Event{
				Kind: index.Stored,
				Scope: index.Scope{Tenant: c.tenant, Model: c.model, LoRA: e.LoRA, Scheme: scheme,
					BlockSize: e.BlockSize, Group: e.Group},
				Tier:      tier,
				HasParent: e.HasParent, Parent: e.Parent,
				Hashes: e.Hashes, Content: contents,
				Spec: e.Spec, Window: e.Window, Tokens: e.TokenCount, Ahead: e.Ahead, Last: last,
			})
			if e.Spec != "" && !index.KnownKind(e.Spec) {
				b.strange("kind ", []byte(e.Spec))
			}
		}
	}
	c.doubts.add(b.Strange)
	out.Doubt = c.doubts.why
	return out, n
}

// remove appends a removal. Engines publish one event per evicted block, dozens in
// a row: remove joins neighbours of the same tier and group.
func (c *converter) remove(out *index.Batch, e *Event) {
	from, tier := len(c.removed), c.adapter.tier(e.Medium)
	c.removed = append(c.removed, e.Hashes...)
	if k := len(out.Events); k > 0 {
		if last := &out.Events[k-1]; last.Kind == index.Removed && last.Tier == tier && last.Scope.Group == e.Group {
			last.Hashes = c.removed[from-len(last.Hashes):]
			return
		}
	}
	if len(e.Hashes) > 0 {
		out.Events = append(out.Events, index.Event{Kind: index.Removed, Tier: tier, Scope: index.Scope{Group: e.Group}, Hashes: c.removed[from:]})
	}
}

// contentsOf hashes the event's blocks. nil means that this project has no right
// key for them: token ids do not cover the hashes one to one (vLLM skips null,
// masked and partial blocks), the event has a value that a key cannot represent,
// or the adapter has no name. last is the content of the last block without the
// tokens behind it, if contents cover those.
func (c *converter) contentsOf(e *Event) (contents []prefixhash.Content, last prefixhash.Content) {
	blocks := len(e.Hashes)
	if c.scheme != index.SchemeTokens || blocks == 0 || e.Unkeyed || e.HasID && !e.LoRA.Set ||
		len(e.Tokens)%e.BlockSize != 0 || len(e.Tokens)/e.BlockSize != blocks ||
		e.Extras != nil && len(e.Extras) != blocks {
		return nil, 0
	}
	from := len(c.contents)
	extras := c.adapter.extras(e)
	if e.Ahead == 0 {
		c.contents = prefixhash.AppendContents(c.contents, e.Tokens, prefixhash.Blocks{Size: e.BlockSize}, extras)
		return c.contents[from:], 0
	}
	if len(e.Behind) != e.Ahead {
		return nil, 0
	}
	c.tokens = append(append(c.tokens[:0], e.Tokens...), e.Behind...)
	c.contents = prefixhash.AppendContents(c.contents, c.tokens, prefixhash.Blocks{Size: e.BlockSize, Ahead: e.Ahead}, extras)
	if len(extras) == blocks {
		extras = extras[blocks-1:]
	}
	c.last = prefixhash.AppendContents(c.last[:0], e.Tokens[(blocks-1)*e.BlockSize:], prefixhash.Blocks{Size: e.BlockSize}, extras)
	return c.contents[from:], c.last[0]
}
