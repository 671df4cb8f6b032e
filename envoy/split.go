package envoy

import (
	"slices"
	"time"
)

// Split says what Envoy does for requests whose prefill runs on another replica than their
// decode.
type Split struct {
	On   bool          // clients cannot name the replicas of legs
	Wait time.Duration // longest wait for a prefill leg, whose kv_transfer_params the body gets on its way to the decode replica; 0 = none is waited for
}

// waitMargin is how much longer than a prefill leg Envoy waits for the answer about it.
const waitMargin = time.Second

// splitShare is the part of the limit of bodies up to which requests are split: with
// kv_transfer_params a body must stay below that limit, and Lua holds it three times.
const splitShare = 4

// idleTimeout is IdleTimeout, or longer: a held request's stream is silent.
func (o Options) idleTimeout() time.Duration {
	if o.Hold > 0 {
		return max(o.IdleTimeout, o.Hold+waitMargin)
	}
	return o.IdleTimeout
}

// Pings reports whether Envoys notice within 2 s that the router is frozen: requests may wait for it.
func (o Options) Pings() bool {
	return o.Pinged || o.Split.Wait > 0 || o.Hold > 0 || o.Mode == FullDuplex
}

func (s Split) fill(in map[string]any, o Options) {
	in["Splits"], in["Waits"] = s.On, s.Wait > 0
	in["Pings"] = o.Pings()
	in["KeyWait"], in["WaitMillis"], in["MaxMessageTimeout"] = KeyWait, s.Wait.Milliseconds(), seconds(max(s.Wait, o.Hold)+waitMargin)
	in["Holds"], in["KeyHold"], in["HoldMillis"] = o.Hold > 0, KeyHold, o.Hold.Milliseconds()
	in["KeyPriority"], in["HeaderPriority"] = KeyPriority, HeaderPriority
	in["KeySplitBody"], in["SplitBody"] = KeySplitBody, o.BodyLimit/splitShare
	in["MetadataSplit"], in["KeySplitTo"], in["KeySplitAt"], in["KeySplitSize"], in["KeySplitParams"] = MetadataSplit, KeySplitTo, KeySplitAt, KeySplitSize, KeySplitParams
	in["HeaderRetry"] = HeaderRetry
	in["KeySplit"], in["KeyPrefill"], in["KeyPrefillCached"] = KeySplit, KeyPrefill, KeyPrefillCached
	if s.On {
		in["Owned"] = slices.Concat(Owned[:], OwnedLegs[:])
	}
}
