//go:build kube

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"warmroute/envoy"
	"warmroute/internal/admin"
	"warmroute/internal/kube/kubetest"
	"warmroute/internal/testenv"
)

// cluster is a router that is given only a kubeconfig, with a stand-in API
// server whose pods are simulated replicas on loopback addresses of their own.
type cluster struct {
	*testing.T
	api    *kubetest.Server
	port   int // of every pod
	admin  string
	picker extprocv3.ExternalProcessorClient
	health healthpb.HealthClient
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

// startCluster has two ready pods and a third that loads its model.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	ports, err := testenv.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, api: kubetest.New(t), port: ports[0], admin: fmt.Sprint("127.0.0.1:", ports[2])}
	listen := fmt.Sprint("127.0.0.1:", ports[1])
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(poolYAML, c.port))...)
	c.api.Put(c.pod("vllm-0", "127.0.0.2", "True"), c.pod("vllm-1", "127.0.0.3", "True"), c.pod("vllm-2", "127.0.0.4", "False"))
	path := filepath.Join(t.TempDir(), "warmroute.yaml")
	text := fmt.Sprintf("listen: %q\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfilter: {picker: true, always_pick: true, token_budget: 5s}\nkubernetes: {pool: vllm, kubeconfig: %q}\n",
		listen, c.admin, c.api.Kubeconfig(t, "inference"))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Run(t, func(ctx context.Context) error {
		return program().Run(ctx, []string{"serve", "-config", path}, stdio{Out: io.Discard, Err: t.Output()})
	})
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c.picker, c.health = extprocv3.NewExternalProcessorClient(conn), healthpb.NewHealthClient(conn)
	return c
}

// get reads a page of the admin server.
func (c *cluster) get(path string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	resp, err := client.Get("http://" + c.admin + path)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// until waits for a page to hold every text.
func (c *cluster) until(path string, texts ...string) {
	c.Helper()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		page, missing := c.get(path), ""
		for _, text := range texts {
			if !strings.Contains(page, text) {
				missing = text
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			c.Fatalf("%s does not say %q:\n%s", path, missing, page)
		}
	}
}

// pick sends a request as a gateway does, body buffered, and returns the
// destinations named, or the status answered in the replicas' place.
func (c *cluster) pick(body []byte) string {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	st, err := c.picker.Process(ctx)
	if err != nil {
		c.Fatal(err)
	}
	headers := &corev3.HeaderMap{Headers: []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte("POST")}, {Key: ":path", RawValue: []byte("/v1/completions")},
	}}
	for _, m := range []*extprocv3.ProcessingRequest{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{Headers: headers}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: body, EndOfStream: true}}},
	} {
		if err := st.Send(m); err != nil {
			c.Fatal(err)
		}
		answer, err := st.Recv()
		if err != nil {
			c.Fatal(err)
		}
		if now := answer.GetImmediateResponse(); now != nil {
			return fmt.Sprint(int32(now.GetStatus().GetCode()))
		}
		for _, h := range answer.GetRequestBody().GetResponse().GetHeaderMutation().GetSetHeaders() {
			if h.GetHeader().GetKey() == envoy.HeaderDestination {
				return string(h.GetHeader().GetRawValue())
			}
		}
	}
	return ""
}

// warm sends a request to the replica it was picked for, as Envoy would.
func (c *cluster) warm(picked string, body []byte) {
	c.Helper()
	first, _, _ := strings.Cut(picked, ",")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Post("http://"+first+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.Fatalf("%s answers %s", first, resp.Status)
	}
}

func (c *cluster) addr(ip string) string { return net.JoinHostPort(ip, fmt.Sprint(c.port)) }

// TestAReplicaJoinsAndLeavesByPool: Envoy follows a pool's pods, where it is not a
// gateway that does so itself.
func TestAReplicaJoinsAndLeavesByPool(t *testing.T) {
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t, api: kubetest.New(t), port: ports[0]}
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(poolYAML, c.port))...)
	first, second := c.pod("vllm-0", "127.0.0.2", "True"), c.pod("vllm-1", "127.0.0.3", "False")
	c.api.Put(first, second)
	f := follow(t, fmt.Sprintf("kubernetes: {pool: vllm, kubeconfig: %q}\n", c.api.Kubeconfig(t, "inference")), nil)
	f.joins("pool at the start", c.addr("127.0.0.2"))
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(podYAML, "vllm-1", "127.0.0.3", "True"))...)
	f.joins("pool", c.addr("127.0.0.3"))
	c.api.Delete(first)
	f.leaves(c.addr("127.0.0.2"))
}

// TestPool: replicas come from a pool's pods, picks follow them, and an API
// server that goes away changes nothing.
func TestPool(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
	c := startCluster(t)
	c.until("/readyz", "ready\n")
	c.until("/debug/replicas", `"name":"vllm-0"`, `"name":"vllm-1"`)
	c.until("/metrics", fmt.Sprintf("warmroute_replica_info{name=\"vllm-0\",replica=%q} 1", c.addr("127.0.0.2")),
		`warmroute_kubernetes_pods{state="ready"} 2`, `warmroute_kubernetes_pods{state="not_ready"} 1`, `warmroute_kubernetes_up{resource="pods"} 1`)
	for _, name := range []string{admin.Overall, admin.Readiness, admin.Liveness, admin.ExternalProcessor} {
		if r, err := c.health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", name, r, err)
		}
	}

	body, err := json.Marshal(map[string]any{"model": "sim", "prompt": strings.Repeat("the same beginning of every question ", 40), "max_tokens": 1})
	if err != nil {
		t.Fatal(err)
	}
	picked := c.pick(body)
	first, _, _ := strings.Cut(picked, ",")
	home, ip := "vllm-0", "127.0.0.2"
	if first == c.addr("127.0.0.3") {
		home, ip = "vllm-1", "127.0.0.3"
	} else if first != c.addr(ip) {
		t.Fatalf("picked %q", picked)
	}
	if strings.Contains(picked, "127.0.0.4") {
		t.Errorf("picked %q: that pod is not ready", picked)
	}
	c.warm(picked, body)
	c.until("/metrics", fmt.Sprintf("warmroute_kv_batches_total{rank=\"0\",replica=%q,result=\"applied\"} 1", first))
	if again := c.pick(body); !strings.HasPrefix(again, first) {
		t.Errorf("picked %q, but %s has the prefix", again, first)
	}
	c.until("/debug/explain", `"reason":"warm"`)

	c.api.Fail(kubetest.Faults{Down: true}) // the outage: nothing changes, and it is reported
	c.api.Disconnect()
	c.until("/readyz", "ready\n", "note: Kubernetes API", "the replicas listed last stay")
	c.until("/metrics", `warmroute_kubernetes_up{resource="pods"} 0`)
	if again := c.pick(body); !strings.HasPrefix(again, first) {
		t.Errorf("picked %q while the API server is away", again)
	}
	c.api.Fail(kubetest.Faults{})
	c.until("/metrics", `warmroute_kubernetes_up{resource="pods"} 1`, `warmroute_kubernetes_up{resource="pool"} 1`)

	gone := kubetest.Parse(t, fmt.Sprintf(podYAML, home, ip, "True"))[0]
	gone["metadata"].(kubetest.Object)["deletionTimestamp"] = "2026-09-30T08:15:10Z"
	c.api.Put(gone) // it still answers, but is on its way out
	c.until("/metrics", `warmroute_fleet_leaves_total{reason="removed"} 1`)
	if again := c.pick(body); again == "" || strings.Contains(again, first) {
		t.Errorf("picked %q: that pod is being deleted", again)
	}
	c.api.Delete(gone)
	c.api.Put(kubetest.Parse(t, fmt.Sprintf(podYAML, "vllm-2", "127.0.0.4", "True"))...)
	c.until("/debug/replicas", `"name":"vllm-2","ready":true`)
	other := "127.0.0.3"
	if ip == other {
		other = "127.0.0.2"
	}
	c.api.Delete(kubetest.Parse(t, fmt.Sprintf(podYAML, map[string]string{"127.0.0.2": "vllm-0", "127.0.0.3": "vllm-1"}[other], other, "True"))...)
	c.until("/metrics", `warmroute_fleet_leaves_total{reason="removed"} 2`)
	if again := c.pick(body); again != c.addr("127.0.0.4") {
		t.Errorf("picked %q, want the one pod that is left", again)
	}
	c.api.Delete(kubetest.Parse(t, fmt.Sprintf(podYAML, "vllm-2", "127.0.0.4", "True"))...)
	c.until("/metrics", `warmroute_fleet_leaves_total{reason="removed"} 3`)
	if again := c.pick(body); again != "503" {
		t.Errorf("picked %q from an empty pool, want 503", again)
	}
}
