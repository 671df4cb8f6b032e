package indexrpc

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/prefixhash"
)

func loraOf(l *indexpb.Lora) prefixhash.LoRA {
	return prefixhash.LoRA{Name: l.GetName(), Path: l.GetPath(), Set: l != nil}
}

// loraTo is loraOf's inverse.
func loraTo(l prefixhash.LoRA) *indexpb.Lora {
	if !l.Set {
		return nil
	}
	return &indexpb.Lora{Name: l.Name, Path: l.Path}
}

// delta reads a report's prefixes, and counts the blocks that it drops. It drops a prefix if one of
// its hashes has no key (an empty one): blocks behind the hole could be taken for another prompt's.
func (s *Server) delta(q *indexpb.ReportCacheStateRequest) (events []index.Event, dropped uint64) {
	now, empty := s.o.Now(), s.o.Empty(q.GetReplicaId())
	for _, p := range q.GetPrefixes() {
		hashes := p.GetBlockHashes()
		if empty {
			hashes = nil // its groups stay
		}
		n := len(hashes)
		keys := make([]prefixhash.Key, 0, n)
		for _, h := range hashes {
			if k, ok := s.key(h); ok {
				keys = append(keys, k)
			}
		}
		opaque := p.GetBlockSize() == 0
		if q.GetHashScheme() == "" || len(keys) < n || opaque && len(p.GetTokenCounts()) != n || p.GetBlockSize() > 1<<31-1 || p.GetGroup() < 0 || p.GetWindow() > 1<<31-1 || p.GetLookahead() > 1<<15 {
			dropped += uint64(n)
			continue
		}
		if n == 0 && p.GetSpecKind() == "" {
			continue
		}
		scope := index.Scope{Tenant: q.GetTenant(), Model: q.GetModel(), LoRA: loraOf(p.GetLora()), Scheme: q.GetHashScheme(),
			BlockSize: int(p.GetBlockSize()), Group: int(p.GetGroup())}
		until := now.Add(s.o.TTL)
		if q.GetTtlMs() > 0 {
			until = now.Add(time.Duration(min(q.GetTtlMs(), int64(s.o.TTL/time.Millisecond))) * time.Millisecond)
		}
		e := index.Event{Kind: index.Stored, Scope: scope, Hashes: make([]uint64, 0, n)}
		for i, k := range keys {
			if opaque && !s.opaque.keep(opaqueKey{scope, k}, p.GetTokenCounts()[i], until, now) {
				dropped++
				continue
			}
			e.Hashes = append(e.Hashes, uint64(k))
		}
		if opaque || q.GetTtlMs() > 0 {
			e.Until = until
		} else {
			e.Tier, e.Spec, e.Window, e.Ahead = index.Tier(p.GetTier()), p.GetSpecKind(), int(p.GetWindow()), int(p.GetLookahead())
			if len(p.GetParentHash()) > 0 {
				parent, ok := s.key(p.GetParentHash())
				if !ok {
					dropped += uint64(n)
					continue
				}
				e.HasParent, e.Parent = true, uint64(parent)
			}
		}
		events = append(events, e)
	}
	return events, dropped
}

// key returns the key of a reported hash, false if it is empty. A hash of up to 8 bytes is the
// key itself, big-endian. The key of one of vLLM's digests (16 or 32 bytes) is its last 8 bytes,
// the integer that vLLM publishes for the same digest: so replicas that report integers and
// replicas that report bytes meet. Other long hashes promise nothing about any 8 of their bytes:
// their key is a hash of all, by a seed of this process.
func (s *Server) key(hash []byte) (prefixhash.Key, bool) {
	n := len(hash)
	if n > 8 && n != 16 && n != 32 {
		return prefixhash.Key(maphash.Bytes(s.seed, hash)), true
	}
	var last [8]byte
	copy(last[max(0, 8-n):], hash[max(0, n-8):])
	return prefixhash.Key(binary.BigEndian.Uint64(last[:])), n > 0
}

// opaqueLimit bounds the hashes whose token counts are kept: about 100 MB.
const opaqueLimit = 1 << 20

// opaque keeps the number of tokens of opaque hashes.
type opaque struct {
	mu     sync.RWMutex
	tokens map[opaqueKey]opaqueEntry
	limit  int
}

type opaqueKey struct {
	scope index.Scope
	key   prefixhash.Key
}

type opaqueEntry struct {
	tokens uint64
	until  time.Time
}

// keep records a count. It returns false if there is no room even without the expired
// ones.
func (o *opaque) keep(k opaqueKey, tokens uint64, until, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.tokens[k]; !known && len(o.tokens) >= o.limit {
		for k, e := range o.tokens {
			if e.until.Before(now) {
				delete(o.tokens, k)
			}
		}
		if len(o.tokens) >= o.limit {
			return false
		}
	}
	o.tokens[k] = opaqueEntry{tokens, until}
	return true
}

func (o *opaque) tokensOf(k opaqueKey) uint64 {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.tokens[k].tokens
}
