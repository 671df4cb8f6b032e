//go:build vllm

package vllm

import (
	"strconv"
	"strings"
	"testing"

	"warmroute/internal/cli/predict"
	"warmroute/render/testkit/must"
)

// offloaded counts the predictions for caches with CPU memory behind them.
type offloaded struct {
	lookups, loads, right, exact int
	unmarked                     int // wrong, and called exact
	untold                       int // the first of these after a reset that no event tells, before vLLM's count shows it

	silent bool // there was such a reset, and vLLM's count has not shown it yet
}

// reset is a call of /reset_prefix_cache.
type reset struct {
	Silent bool `json:"silent"` // CPU memory is cleared, and no event tells
}

// leastLoads is how many lookups of a release must load something, so that the test shows
// anything.
const leastLoads = 500

// offloaded compares a prediction with what vLLM took from the GPU and loaded from CPU memory.
func (d *drive) offloaded(a *predict.Answer, cached, host int) {
	o := &d.memory
	o.lookups++
	if host > 0 {
		o.loads++
	}
	if a.Exact {
		o.exact++
	}
	switch {
	case a.Cached == cached && a.Host == host:
		o.right++
	case !a.Exact:
	case o.silent:
		o.untold++
		o.silent = false
	default:
		if o.unmarked++; o.unmarked <= 20 {
			d.t.Errorf("%s, lookup %d: predicted %d and %d from CPU memory, vLLM took %d and %d", d.config, o.lookups, a.Device, a.Host, cached-host, host)
		}
	}
	if strings.Contains(d.config, "-busy-") { // only counts show silent resets
		must.Get(d.p.Take([]byte(`{"usage":` + strconv.Itoa(cached) + `}`)))(d.t)
	}
}

func (o *offloaded) check(t *testing.T, version string) {
	if o.lookups == 0 && version < "0.32" {
		return // connectors of that time announce other events
	}
	t.Logf("with CPU memory: %d lookups, %d loaded something; %d right, %d called exact, %d of them wrong, %d more after resets that no event tells",
		o.lookups, o.loads, o.right, o.exact, o.unmarked, o.untold)
	if o.loads < leastLoads {
		t.Errorf("%d of %d lookups loaded something, want at least %d", o.loads, o.lookups, leastLoads)
	}
}
