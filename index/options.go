package index

import (
	"time"

	"warmroute/index/internal/holderset"
	"warmroute/index/internal/radix"
)

// Defaults of Options.
const (
	DefaultMaxScopes      = 1000
	DefaultMaxScopeBlocks = 32 << 20 // about 1.4 GiB
	DefaultMaxBlocks      = 64 << 20
	DefaultSweepEvery     = time.Minute
	DefaultReplicaTTL     = 20 * time.Minute
	DefaultCPUTTL         = 10 * time.Minute
	DefaultStorageTTL     = time.Hour
)

// MaxHolders bounds the holders of one (tenant, model) at a time: 4,096
// replicas, with room for the ranks of some of them and for ended incarnations
// that are not swept yet.
const MaxHolders = holderset.MaxSlots

// Options bound an Index. Zero values mean the defaults.
type Options struct {
	Now func() time.Time // the clock; nil is Now

	MaxScopes      int // scopes with entries
	MaxScopeBlocks int // distinct blocks per scope
	MaxBlocks      int // distinct blocks; and as many of holders with several cache groups, counted for each holder

	SweepEvery time.Duration // how often Run sweeps
	ReplicaTTL time.Duration // a reporter that sends nothing for longer is dropped
	CPUTTL     time.Duration // how long a block in CPU memory counts, since its last event, if its holder announces no removals
	StorageTTL time.Duration // the same in storage

	checkpointEvery int // see radix.DefaultCheckpointEvery
}

// Effective returns o with the defaults filled in.
func (o Options) Effective() Options {
	if o.Now == nil {
		o.Now = Now
	}
	positive(&o.checkpointEvery, radix.DefaultCheckpointEvery)
	positive(&o.MaxScopes, DefaultMaxScopes)
	o.MaxScopes = min(o.MaxScopes, radix.MaxTrees)
	positive(&o.MaxScopeBlocks, DefaultMaxScopeBlocks)
	positive(&o.MaxBlocks, DefaultMaxBlocks)
	positive(&o.SweepEvery, DefaultSweepEvery)
	positive(&o.ReplicaTTL, DefaultReplicaTTL)
	positive(&o.CPUTTL, DefaultCPUTTL)
	positive(&o.StorageTTL, DefaultStorageTTL)
	return o
}

func positive[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
