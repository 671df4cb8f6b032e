//go:build vllm

package vllm

import (
	"time"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// relaunch starts a killed replica again with the same addresses and waits
// until the router has taken it back.
func (f *fixture) relaunch(i int) {
	f.t.Helper()
	old := f.replicas[i]
	v := must.Get(testenv.RestartVLLM(f.dir, old))(f.t)
	f.t.Cleanup(v.Stop)
	f.replicas[i] = v
	f.awaitHealth(v)
	testenv.Until(f.t, 20*time.Second, "the restarted replica is ready", func() bool { return sum(testenv.Metrics(f.t, f.admin), `warmroute_fleet_replicas{state="ready"}`) == 2 })
}
