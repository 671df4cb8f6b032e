//go:build kube

package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"warmroute/internal/kube/kubetest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// cluster is a stand-in API server whose pods are simulated replicas on loopback addresses
// of their own.
type cluster struct {
	*testing.T
	api  *kubetest.Server
	port int // of every pod
}

const poolYAML = `
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: vllm, namespace: inference}
spec:
  selector: {matchLabels: {app: vllm}}
  targetPorts: [{number: %d}]
  endpointPickerRef: {name: warmroute, port: {number: 9002}, failureMode: FailOpen}
`

const podYAML = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: inference, labels: {app: vllm}}
status: {phase: Running, podIP: %s, conditions: [{type: Ready, status: "%s"}]}
`

// pod starts a simulated replica and returns the pod it is in.
func (c *cluster) pod(name, ip, ready string) kubetest.Object {
	c.Helper()
	testenv.StartSimulator(c.T, "-listen", fmt.Sprintf("%s:%d", ip, c.port), "-events", ip+":0", "-replay", ip+":0")
	return kubetest.Parse(c, fmt.Sprintf(podYAML, name, ip, ready))[0]
}

func (c *cluster) addr(ip string) string { return net.JoinHostPort(ip, fmt.Sprint(c.port)) }

// joins sends requests until addr has served one, and states how long it took.
func (f *following) joins(how, addr string) {
	f.t.Helper()
	start := time.Now()
	until(f.t, addr+" is served", func() bool { return f.ask() == addr })
	f.t.Logf("joined by %s: served after %v", how, time.Since(start).Round(time.Millisecond))
	_, page := get(f.t, "http://"+f.admin+"/metrics")
	if !strings.Contains(page, "warmroute_served_elsewhere_total 0\n") {
		f.t.Error("a hint was not followed: it named what Envoy did not have yet")
	}
}

// leaves waits until Envoy has dropped addr, and holds it to sending nothing there.
func (f *following) leaves(addr string) {
	f.t.Helper()
	until(f.t, addr+" is gone from Envoy", func() bool {
		_, page := get(f.t, f.envoy.Admin+"/clusters")
		return !strings.Contains(page, "::"+addr+"::")
	})
	for range 20 {
		if f.ask() == addr {
			f.t.Fatalf("%s was served after it had left", addr)
		}
	}
}

// TestAReplicaJoinsAndLeavesByPool: Envoy follows a pool's pods, where it is not a
// gateway that does so itself.
func TestAReplicaJoinsAndLeavesByPool(t *testing.T) {
	ports := must.Get(testenv.FreePorts(1))(t)
	c := &cluster{T: t, api: kubetest.New(t), port: ports[0]}
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(poolYAML, c.port))...)
	first, second := c.pod("vllm-0", "127.0.0.2", "True"), c.pod("vllm-1", "127.0.0.3", "False")
	c.api.Put(first, second)
	f := follow(t, fmt.Sprintf("kubernetes: {pool: vllm, kubeconfig: %q}\n", c.api.Kubeconfig(t, "inference")))
	f.joins("pool at the start", c.addr("127.0.0.2"))
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(podYAML, "vllm-1", "127.0.0.3", "True"))...)
	f.joins("pool", c.addr("127.0.0.3"))
	c.api.Delete(first)
	f.leaves(c.addr("127.0.0.2"))
}
