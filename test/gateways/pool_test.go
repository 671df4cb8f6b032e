//go:build gateways

package gateways

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/certs"
	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

func insecure() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // the API server's certificate is its own
}

// writeKey writes the key that signs service accounts' tokens.
func writeKey(t *testing.T, file string) {
	t.Helper()
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	must.Do(t, os.WriteFile(file, text, 0o600))
}

// pool is the example of the inference pool on a real API: the router with the
// example's account, role and configuration, and Envoy that calls it in picker
// mode. The router reaches the API server through a gate.
type pool struct {
	*cluster
	gate     *testenv.Gate
	router   *router
	replicas []*replica
	objects  map[string]object // of the example, by kind and name
	pool     object            // likewise
	load     *load
	tokens   int
}

const pods = "/api/v1/namespaces/inference/pods"

func startPool(t *testing.T) *pool {
	t.Helper()
	p := &pool{cluster: startCluster(t), objects: map[string]object{}}
	for i := range 4 {
		p.replicas = append(p.replicas, newReplica(t, p.dir, podIP(i+1)))
	}
	p.gate = must.Get(testenv.NewGate(apiServer))(t)
	t.Cleanup(p.gate.Close)
	p.define("inference-extension")
	for _, o := range example(t, "inference-pool") {
		kind := o["kind"].(string)
		p.objects[kind+" "+at(o, "metadata", "name").(string)] = o
		switch kind {
		case "Namespace", "ServiceAccount", "Role", "RoleBinding":
			p.put(o)
		}
	}
	for name, o := range p.objects {
		if strings.HasPrefix(name, "InferencePool ") {
			p.pool = o
		}
	}
	p.newToken()
	p.router = &router{t: t, dir: p.dir, file: p.configuration()}
	p.router.launch()
	return p
}

// configuration is the example's, with a kubeconfig where a pod would find its
// service account.
func (p *pool) configuration() string {
	p.Helper()
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	write(p.T, kubeconfig, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{object{"name": "c", "cluster": object{"server": "https://" + p.gate.Addr, "certificate-authority": filepath.Join(p.dir, "certificates", "apiserver.crt")}}},
		"users":    []any{object{"name": "c", "user": object{"tokenFile": filepath.Join(p.dir, "token")}}},
		"contexts": []any{object{"name": "c", "context": object{"cluster": "c", "user": "c", "namespace": "inference"}}},
	})
	root := checkout.Root()
	config := manifest.Objects(p.T, filepath.Join(root, "examples", "inference-pool", "warmroute.yaml"))[0]
	config["kubernetes"].(object)["kubeconfig"] = kubeconfig
	file := filepath.Join(p.dir, "warmroute.yaml")
	write(p.T, file, config)
	return file
}

// newToken writes a token of the router's account that is good for as long as
// the Secret it is bound to is there.
func (p *pool) newToken() {
	p.Helper()
	p.tokens++
	name := fmt.Sprint("token-", p.tokens)
	secret := object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name, "namespace": "inference"}}
	p.put(secret)
	answer := p.do(http.MethodPost, "/api/v1/namespaces/inference/serviceaccounts/warmroute/token", "application/json", object{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"spec": object{"expirationSeconds": 3600, "boundObjectRef": object{"apiVersion": "v1", "kind": "Secret", "name": name}},
	})
	must.Do(p, os.WriteFile(filepath.Join(p.dir, "token"), []byte(at(answer, "status", "token").(string)), 0o600))
}

// revoke makes the router's token worthless and waits until it is.
func (p *pool) revoke() {
	p.Helper()
	token := must.Get(os.ReadFile(filepath.Join(p.dir, "token")))(p)
	p.do(http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/inference/secrets/token-%d", p.tokens), "", nil)
	until(p.T, "the token is refused", func() bool {
		req := must.Get(http.NewRequestWithContext(p.Context(), http.MethodGet, "https://"+apiServer+pods, nil))(p)
		req.Header.Set("Authorization", "Bearer "+string(token))
		resp, err := p.client.Do(req)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusUnauthorized
	})
}

// pod writes the i-th replica's pod as a kubelet would have it.
func (p *pool) pod(i int) {
	p.Helper()
	p.put(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{
		"name": fmt.Sprint("vllm-", i), "namespace": "inference", "labels": at(p.pool, "spec", "selector", "matchLabels"),
	}, "spec": object{"nodeName": "node-1", "containers": []any{object{"name": "vllm", "image": "vllm"}}}})
	p.ready(i, true)
}

// ready sets whether the i-th replica's pod is ready.
func (p *pool) ready(i int, yes bool) {
	p.Helper()
	status := map[bool]string{true: "True", false: "False"}[yes]
	p.do(http.MethodPatch, fmt.Sprintf("%s/vllm-%d/status", pods, i), "application/merge-patch+json", object{"status": object{
		"phase": "Running", "podIP": podIP(i), "podIPs": []any{object{"ip": podIP(i)}},
		"conditions": []any{object{"type": "Ready", "status": status}},
	}})
}

// remove deletes the i-th replica's pod: at once, or as a kubelet would that
// ends it first.
func (p *pool) remove(i int, seconds int) {
	p.Helper()
	p.do(http.MethodDelete, fmt.Sprintf("%s/vllm-%d?gracePeriodSeconds=%d", pods, i, seconds), "", nil)
}

// followed waits until the router has n ready replicas.
func (p *pool) followed(n int) {
	p.Helper()
	until(p.T, fmt.Sprint(n, " replicas"), func() bool {
		page, err := testenv.Get(p.Context(), routerAdmin+"/metrics")
		return err == nil && testenv.Samples(page, "warmroute_fleet_replicas", "state")["ready"] == float64(n)
	})
}

// left waits until the i-th replica is sent nothing any more: of the last
// hundred requests, a dozen of which it would have had, it has served none.
func (p *pool) left(i int) {
	p.Helper()
	until(p.T, podIP(i)+" is sent nothing", func() bool {
		return lastNumber.Load() > p.load.last(p.replicas[i-1].addr())+100
	})
}

// requests is how many of the router's API requests had this result.
func (p *pool) requests(t *testing.T, result string) float64 {
	t.Helper()
	return p.router.metric(t, "warmroute_kubernetes_requests_total", "result", result)
}

// startEnvoy starts an Envoy that calls the router in picker mode, with all
// addresses that pods may have.
func (p *pool) startEnvoy() *testenv.Envoy {
	p.Helper()
	o := envoy.Options{Listen: "127.0.0.1:10080", Admin: "127.0.0.1:10081", ExtProc: []string{"127.0.0.1:9002"}, TLS: certs.ClientOptions{Enabled: true},
		Mode: envoy.FullDuplex, ServedHeader: true, AccessLog: "none",
		MessageTimeout: 10 * time.Second} // this does not test a busy machine
	for _, r := range p.replicas {
		o.Replicas = append(o.Replicas, r.addr(), r.ip+":28000")
	}
	var boot bytes.Buffer
	must.Do(p, envoy.WriteBootstrap(&boot, o))
	e := must.Get(testenv.StartEnvoy(p.dir, "envoy", boot.Bytes(), o.Listen, o.Admin))(p)
	p.Cleanup(e.Stop)
	must.Do(p, e.WaitHealthy(p.Context(), "warmroute"))
	return e
}

// TestInferencePool: the router follows a pool through a real API server with
// nothing but the example's role, while everything about both comes and goes.
func TestInferencePool(t *testing.T) {
	p := startPool(t)
	until(t, "the router says that there is no pool", func() bool {
		resp, err := http.Get(routerAdmin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(resp.Body)
		return err == nil && resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(text.String(), "it does not exist")
	})
	p.put(p.pool)
	for i := range 3 {
		p.pod(i + 1)
	}
	p.followed(3)
	if n := p.requests(t, "forbidden"); n > 0 {
		t.Errorf("%v requests were beyond the example's role", n)
	}
	e := p.startEnvoy()
	p.load = startLoad(e.URL, nil)
	defer p.load.stop()
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"pods come and go", p.podsComeAndGo},
		{"the pool changes, goes and comes", p.poolChanges},
		{"watches are interrupted", p.interrupted},
		{"history is compacted", p.compacted},
		{"the token expires", p.tokenExpires},
		{"the API server is killed", p.serverKilled},
		{"the pool's port changes", p.portChanges},
	} {
		t.Logf("%s, after %d requests", step.name, lastNumber.Load())
		step.run()
		if t.Failed() {
			return
		}
	}
	s := p.load.stop()
	t.Log(s)
	if len(s.failed)+s.cut > 0 {
		t.Errorf("requests failed: %v, cut: %d", s.failed, s.cut)
	}
	for i := range 3 {
		p.ready(i+1, false)
	}
	p.followed(0)
	n := lastNumber.Add(1)
	if _, why := post(newClient(), e.URL, n, prompt(n), nil); why != strconv.Itoa(http.StatusServiceUnavailable) {
		t.Errorf("with no pod ready: %q", why)
	}
}

func (p *pool) podsComeAndGo() {
	p.pod(4)
	p.followed(4)
	p.ready(2, false)
	p.followed(3)
	p.left(2)
	p.ready(2, true)
	p.followed(4)
	p.remove(4, 30) // it is still there, and answers, and is sent nothing new
	p.followed(3)
	p.left(4)
	p.remove(4, 0)
}

func (p *pool) poolChanges() {
	p.do(http.MethodPatch, pods+"/vllm-1", "application/merge-patch+json", object{"metadata": object{"labels": object{"half": "first"}}})
	p.do(http.MethodPatch, pods+"/vllm-2", "application/merge-patch+json", object{"metadata": object{"labels": object{"half": "first"}}})
	changed := clone(p.T, p.pool)
	at(changed, "spec", "selector", "matchLabels").(object)["half"] = "first"
	p.put(changed)
	p.followed(2)
	p.left(3)
	p.put(p.pool)
	p.followed(3)
	p.do(http.MethodDelete, p.path(p.pool), "", nil)
	until(p.T, "the pool is known to be gone", func() bool { return p.router.metric(p.T, "warmroute_kubernetes_pool_usable", "", "") == 0 })
	p.pod(4) // pods are followed all the same
	p.followed(4)
	p.remove(4, 0)
	p.followed(3)
	p.put(p.pool)
	until(p.T, "the pool is back", func() bool { return p.router.metric(p.T, "warmroute_kubernetes_pool_usable", "", "") == 1 })
}

// portChanges: every replica is replaced by another, at another port.
func (p *pool) portChanges() {
	changed := clone(p.T, p.pool)
	changed["spec"].(object)["targetPorts"] = []any{object{"number": 28000}}
	for range 20 { // without an overlap of leaving and coming pods every third request would fail
		p.put(changed)
		p.follows(p.replicas[0].ip+":28000", true)
		p.follows(p.replicas[0].addr(), false)
		p.put(p.pool)
		p.follows(p.replicas[0].addr(), true)
		p.follows(p.replicas[0].ip+":28000", false)
	}
	p.followed(3)
}

// follows waits until an address is a replica, or is not.
func (p *pool) follows(addr string, yes bool) {
	p.Helper()
	until(p.T, fmt.Sprint(addr, " is a replica: ", yes), func() bool {
		page, err := testenv.Get(p.Context(), routerAdmin+"/debug/replicas")
		return err == nil && strings.Contains(page, strconv.Quote(addr)) == yes
	})
}

func (p *pool) interrupted() {
	for range 3 {
		p.gate.Close()
		p.ready(3, false) // while the router is cut off from the API
		p.open()
		p.followed(2)
		p.left(3)
		p.ready(3, true)
		p.followed(3)
	}
}

func (p *pool) open() {
	p.Helper()
	must.Do(p, p.gate.Open())
}

// compacted: while the router is away there are more changes than the API server
// keeps, and etcd forgets all before the last.
func (p *pool) compacted() {
	_, list := p.try(http.MethodGet, pods, "", nil)
	var before object
	must.Do(p, json.Unmarshal(list, &before))
	p.gate.Close()
	version := ""
	for i := range 400 {
		o := p.do(http.MethodPatch, pods+"/vllm-1", "application/merge-patch+json", object{"metadata": object{"annotations": object{"step": strconv.Itoa(i)}}})
		version = at(o, "metadata", "resourceVersion").(string)
	}
	resp := must.Get(http.Post(etcd+"/v3/kv/compaction", "application/json", strings.NewReader(fmt.Sprintf(`{"revision": %s, "physical": true}`, version))))(p)
	resp.Body.Close()
	p.server.Kill() // its memory of changes goes too
	p.startServer()
	p.ready(2, false)
	_, answer := p.try(http.MethodGet, fmt.Sprintf("%s?watch=true&timeoutSeconds=1&resourceVersion=%v", pods, at(before, "metadata", "resourceVersion")), "", nil)
	if !bytes.Contains(answer, []byte(`"code":410`)) {
		p.Fatalf("a watch from before gets %s", answer)
	}
	p.open()
	p.followed(2)
	p.left(2)
	p.ready(2, true)
	p.followed(3)
}

func (p *pool) tokenExpires() {
	refused := p.requests(p.T, "forbidden")
	p.revoke()
	p.gate.Close() // a watch that is open continues
	p.open()
	until(p.T, "the router is refused", func() bool { return p.requests(p.T, "forbidden") > refused })
	p.ready(1, false)
	p.newToken()
	p.followed(2)
	p.left(1)
	p.ready(1, true)
	p.followed(3)
}

func (p *pool) serverKilled() {
	for range 2 {
		p.server.Kill()
		until(p.T, "the outage is seen", func() bool { return p.router.metric(p.T, "warmroute_kubernetes_up", "resource", "pods") == 0 })
		from := lastNumber.Load()
		until(p.T, "requests meanwhile", func() bool { return lastNumber.Load() > from+500 })
		p.startServer()
		p.ready(2, false)
		p.followed(2)
		p.left(2)
		p.ready(2, true)
		p.followed(3)
	}
}

func clone(t *testing.T, o object) (out object) {
	t.Helper()
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
