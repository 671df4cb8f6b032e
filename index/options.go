package index

import (
	"fmt"
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

// Effective returns o with the defaults filled in, and one sentence for each
// replaced value.
func (o Options) Effective() (Options, []string) {
	var warnings []string
	if o.Now == nil {
		o.Now = Now
	}
	if o.checkpointEvery == 0 {
		o.checkpointEvery = radix.DefaultCheckpointEvery
	}
	number := func(name string, v *int, def int) {
		if *v < 0 {
			warnings = append(warnings, fmt.Sprintf("index: %s is %d, which is not positive; using %d", name, *v, def))
		}
		if *v <= 0 {
			*v = def
		}
	}
	span := func(name string, v *time.Duration, def time.Duration) {
		if *v < 0 {
			warnings = append(warnings, fmt.Sprintf("index: %s is %v, which is not positive; using %v", name, *v, def))
		}
		if *v <= 0 {
			*v = def
		}
	}
	number("max_scopes", &o.MaxScopes, DefaultMaxScopes)
	if o.MaxScopes > radix.MaxTrees {
		warnings = append(warnings, fmt.Sprintf("index: max_scopes is %d, more than there can be; using %d", o.MaxScopes, radix.MaxTrees))
		o.MaxScopes = radix.MaxTrees
	}
	number("max_scope_blocks", &o.MaxScopeBlocks, DefaultMaxScopeBlocks)
	number("max_blocks", &o.MaxBlocks, DefaultMaxBlocks)
	span("sweep_every", &o.SweepEvery, DefaultSweepEvery)
	span("replica_ttl", &o.ReplicaTTL, DefaultReplicaTTL)
	span("cpu_ttl", &o.CPUTTL, DefaultCPUTTL)
	span("storage_ttl", &o.StorageTTL, DefaultStorageTTL)
	return o, warnings
}
