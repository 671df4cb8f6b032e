//go:build vllm

package vllm

import (
	"time"

	"warmroute/internal/testenv"
)

// relaunch starts a killed replica again with the same addresses and waits
// until the router has taken it back.
func (f *fixture) relaunch(i int) {
	f.t.Helper()
	old := f.replicas[i]
	v, err := testenv.RestartVLLM(f.dir, old)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(v.Stop)
	f.replicas[i] = v
	f.awaitHealth(v)
	for end := time.Now().Add(20 * time.Second); sum(testenv.Metrics(f.t, f.admin), `warmroute_fleet_replicas{state="ready"}`) != 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatal("the restarted replica is not ready after 20 s")
		}
	}
}
