//go:build gateways

package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

const (
	istiod     = "127.0.0.1:15010" // in clear text, as no certificates are under test
	envoyAdmin = "127.0.0.1:10081"
	inference  = "inference" // the example's namespace, and its Gateway's name
)

// gatewayIP and routerIP are the addresses of their pods.
var gatewayIP, routerIP = podIP(8), podIP(9)

// mesh is Istio's control plane with a real API server, the Envoy that it
// configures, and all behind it.
type mesh struct {
	gateway
	api *cluster
}

// startMesh starts Istio on an example, with three replicas; the router is not
// started. features are istiod's.
func startMesh(t *testing.T, name string, features ...string) *mesh {
	t.Helper()
	m := &mesh{api: startCluster(t)}
	dir := m.api.dir
	m.gateway = gateway{T: t, dir: dir, url: "http://127.0.0.1:80", admin: "http://" + envoyAdmin, log: filepath.Join(dir, "access.log")}
	m.router = &router{t: t, dir: dir, file: filepath.Join(checkout.Root(), "examples", name, "warmroute.yaml")}
	for i := range 3 {
		m.replicas = append(m.replicas, newReplica(t, dir, podIP(i+1)))
	}
	m.api.define("gateway-api", "inference-extension", "istio")
	for _, space := range []string{inference, "istio-system"} {
		m.api.put(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": space}})
	}
	m.api.put(example(t, name)...)
	m.populate()
	m.startIstiod(features)
	m.startEnvoy()
	return m
}

// populate writes what a cluster would: the pods of every workload and the
// endpoints of every Service, and the Service that Istio writes for a Gateway.
func (m *mesh) populate() {
	m.api.put(object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": inference + "-istio", "namespace": inference}, "spec": object{
		"selector": gatewayLabels, "ports": []any{object{"name": "http", "port": 80, "appProtocol": "http"}},
	}})
	var vllm []string
	for i, r := range m.replicas {
		m.api.pod(fmt.Sprint("vllm-", i+1), r.ip, object{"app": "vllm-qwen3-8b"})
		vllm = append(vllm, r.ip)
	}
	m.api.pod("warmroute-1", routerIP, object{"app": "warmroute"})
	m.api.pod(inference+"-istio-1", gatewayIP, gatewayLabels)
	m.api.endpoints("vllm", "http", 8000, vllm...)
	m.api.endpoints("warmroute", "grpc", 9002, routerIP)
	m.api.endpoints(inference+"-istio", "http", 80, gatewayIP)
}

var gatewayLabels = object{"gateway.networking.k8s.io/gateway-name": inference}

// pod writes a pod as a kubelet would have it.
func (c *cluster) pod(name, ip string, labels any) {
	c.Helper()
	c.put(object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "namespace": inference, "labels": labels},
		"spec": object{"nodeName": "node-1", "containers": []any{object{"name": "main", "image": "main"}}}})
	c.do(http.MethodPatch, pods+"/"+name+"/status", "application/merge-patch+json", object{"status": object{
		"phase": "Running", "podIP": ip, "podIPs": []any{object{"ip": ip}},
		"conditions": []any{object{"type": "Ready", "status": "True"}},
	}})
}

// endpoints writes a Service's endpoints as its controller would.
func (c *cluster) endpoints(service, port string, number int, ips ...string) {
	c.Helper()
	var list []any
	for _, ip := range ips {
		list = append(list, object{"addresses": []any{ip}, "conditions": object{"ready": true, "serving": true, "terminating": false}})
	}
	c.put(object{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": list,
		"metadata": object{"name": service + "-1", "namespace": inference, "labels": object{"kubernetes.io/service-name": service}},
		"ports":    []any{object{"name": port, "port": number, "protocol": "TCP"}},
	})
}

// startIstiod starts Istio's control plane.
func (m *mesh) startIstiod(features []string) {
	m.Helper()
	m.configureMesh(nil)
	write(m.T, m.kubeconfig(), object{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{object{"name": "c", "cluster": object{"server": "https://" + apiServer, "certificate-authority": filepath.Join(m.dir, "certificates", "apiserver.crt")}}},
		"users":    []any{object{"name": "c", "user": object{"token": m.api.admin}}},
		"contexts": []any{object{"name": "c", "context": object{"cluster": "c", "user": "c", "namespace": inference}}},
	})
	process := must.Get(testenv.Start(m.dir, "istiod", append([]string{
		// Filters that are only in Istio's build of Envoy.
		"PILOT_ENABLE_ALPN_FILTER=false", "PILOT_ENABLE_METADATA_EXCHANGE=false",
		"POD_NAMESPACE=istio-system", "POD_NAME=istiod-1",
	}, features...), installed(m.T, "pilot-discovery"), "discovery", "--kubeconfig", m.kubeconfig(), "--meshConfig", m.config(), "--grpcAddr", istiod, "--secureGRPCAddr", "",
		"--httpAddr", "127.0.0.1:8080", "--httpsAddr", "", "--monitoringAddr", "127.0.0.1:15014", "--ctrlz_port", "0"))(m)
	m.Cleanup(process.Stop)
	m.Cleanup(func() {
		if m.Failed() {
			m.Logf("istiod's log ends with\n%s", process.Tail())
		}
	})
	answers(m.T, process, "http://127.0.0.1:8080/ready")
}

// config is the file of the mesh's configuration, kubeconfig that of an administrator.
func (m *mesh) config() string     { return filepath.Join(m.dir, "mesh.yaml") }
func (m *mesh) kubeconfig() string { return filepath.Join(m.dir, "admin.kubeconfig") }

// configureMesh writes the mesh's configuration, which istiod reads again when it
// changes.
func (m *mesh) configureMesh(settings object) {
	m.Helper()
	all := object{
		"accessLogFile": m.log, "accessLogFormat": accessLog,
		"enableAutoMtls": false, // Envoy has no agent beside it that would give it certificates
	}
	maps.Copy(all, settings)
	write(m.T, m.config()+".new", all)
	must.Do(m, os.Rename(m.config()+".new", m.config()))
}

// startEnvoy starts an Envoy that takes its whole configuration from istiod, as
// Istio's agent would start it in the Gateway's pod.
func (m *mesh) startEnvoy() {
	m.Helper()
	grpc := object{"api_type": "GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
		"grpc_services": []any{object{"envoy_grpc": object{"cluster_name": "xds-grpc"}}}}
	ads := object{"ads": object{}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"}
	name := inference + "-istio-1"
	boot := must.Get(json.Marshal(object{
		"node": object{
			"id":       fmt.Sprintf("router~%s~%s.%s~%s.svc.cluster.local", gatewayIP, name, inference, inference),
			"cluster":  inference + "-istio." + inference,
			"metadata": object{"NAME": name, "NAMESPACE": inference, "CLUSTER_ID": "Kubernetes", "INSTANCE_IPS": gatewayIP, "ISTIO_VERSION": "1.31.0", "LABELS": gatewayLabels},
		},
		"admin":             object{"address": socket(envoyAdmin)},
		"dynamic_resources": object{"ads_config": grpc, "lds_config": ads, "cds_config": ads},
		"static_resources": object{"clusters": []any{object{
			"name": "xds-grpc", "type": "STATIC", "connect_timeout": "1s",
			"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": object{"http2_protocol_options": object{}},
			}},
			"load_assignment": object{"cluster_name": "xds-grpc", "endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": socket(istiod)}}}}}},
		}}},
	}))(m)
	e := must.Get(testenv.StartEnvoy(m.dir, "envoy", boot, "127.0.0.1:80", envoyAdmin, "--file-flush-interval-msec", "200"))(m)
	m.Cleanup(e.Stop)
	m.Cleanup(func() {
		if m.Failed() {
			m.Logf("Envoy's log ends with\n%s", e.Tail())
		}
	})
	until(m.T, "Envoy's port", func() bool { return strings.Contains(m.page("/listeners"), "0.0.0.0:80\n") })
}

// knows waits until Envoy has the endpoints of every replica, and of the router.
func (m *mesh) knows() {
	m.Helper()
	addrs := []string{routerIP + ":9002"}
	for _, r := range m.replicas {
		addrs = append(addrs, r.addr())
	}
	for _, addr := range addrs {
		until(m.T, "Envoy knows "+addr, func() bool { return strings.Contains(m.page("/clusters"), "::"+addr+"::") })
	}
}

// socket is Envoy's form of an address.
func socket(addr string) object {
	host, port, _ := strings.Cut(addr, ":")
	return object{"socket_address": object{"address": host, "port_value": json.Number(port)}}
}

// TestIstio: the example through Istio's control plane and the Envoy that it
// configures, while the router and replicas come and go.
func TestIstio(t *testing.T) {
	m := startMesh(t, "istio")
	m.knows()
	t.Run("Envoy has the generated settings", m.asGenerated)
	m.works(t)
	t.Run("a chat's later turns", m.chats)
	t.Run("the mesh has settings for localities", m.localities)
	t.Run("two models", m.models)
}

// TestIstioHolds: with hold.yaml beside the example, requests are held.
func TestIstioHolds(t *testing.T) {
	m := startMesh(t, "istio")
	m.knows()
	m.router.start()
	m.holds(t, func() { m.api.put(holdObjects(t, "istio")...) })
}

// localities gives the mesh settings beside which Envoy refuses a load balancing
// policy. The example's DestinationRule keeps them off its Service.
func (m *mesh) localities(t *testing.T) {
	weighted := func(cluster string) bool {
		_, _, clusters := m.dumped()
		return at(clusters[cluster], "common_lb_config", "locality_weighted_lb_config") != nil
	}
	m.configureMesh(object{"localityLbSetting": object{"distribute": []any{object{"from": "*", "to": object{"*": 100}}}}})
	until(t, "Envoy has the mesh's settings", func() bool { return weighted(routerCluster) })
	if weighted(vllmCluster) {
		t.Error("the replicas' cluster has them, too")
	}
	m.asGenerated(t)
	m.followsAll(t, nil)
	rule := manifest.Objects(t, filepath.Join(checkout.Root(), "examples", "istio", "destinationrule.yaml"))[0]
	refused := m.stat("cluster_manager.cds.update_rejected")
	m.api.do(http.MethodDelete, m.api.path(rule), "", nil)
	until(t, "without the rule, Envoy refuses the cluster", func() bool { return m.stat("cluster_manager.cds.update_rejected") > refused })
	m.api.put(rule)
	m.configureMesh(nil)
	until(t, "Envoy has its settings again", func() bool { return !weighted(routerCluster) })
}

// models turns the third replica into that of another model, as the example for
// several models has it. Every request reaches a replica of its model, also while
// the router is dead, which alone has Envoy read the bodies.
func (m *mesh) models(t *testing.T) {
	const other, read = "Qwen/Qwen3-30B-A3B", "json_to_metadata.rq.success"
	third := m.replicas[2]
	third.kill()
	third.model = other
	third.start()
	m.api.endpoints("vllm", "http", 8000, m.replicas[0].ip, m.replicas[1].ip)
	m.api.put(manifest.Objects(t, filepath.Join(checkout.Root(), "examples", "istio", "models.yaml"))...)
	m.api.endpoints("vllm-qwen3-30b", "http", 8000, third.ip)
	until(t, "Envoy has the second model's route and cluster", func() bool {
		_, route, clusters := m.dumped()
		policy := at(clusters["outbound|8000||vllm-qwen3-30b.inference.svc.cluster.local"], "load_balancing_policy")
		return at(route, "match", "dynamic_metadata") != nil && policy != nil
	})
	m.router.Kill()
	m.router.start()
	m.found()
	ask := func(t *testing.T) {
		t.Helper()
		client := newClient()
		defer client.CloseIdleConnections()
		from := lastNumber.Load()
		const requests = 40
		for range requests {
			n := lastNumber.Add(1)
			body := bytes.Replace(prompt(n), []byte(`"sim"`), []byte(strconv.Quote(other)), 1)
			if _, why := post(client, m.url, n, body, nil); why != "" {
				t.Errorf("a request failed: %s", why)
			}
		}
		for _, l := range logged(t, m.log, tally{from: from, to: from + requests, sent: requests}) {
			if l.served != third.addr() {
				t.Errorf("%s served the other model", l.served)
			}
		}
	}
	before := m.stat(read)
	without := m.followsAll(t, nil)
	ask(t)
	if n := m.stat(read) - before; n > without {
		t.Errorf("Envoy read %d bodies, and %d requests had no hint", n, without)
	}
	m.router.Kill()
	before = m.stat(read)
	lines := m.under(t, nil, some, false, func() {})
	ask(t)
	if n := m.stat(read) - before; n < len(lines) {
		t.Errorf("Envoy read %d bodies of %d", n, len(lines))
	}
}

// chats has every later turn of a chat be served where the first was.
func (g *gateway) chats(t *testing.T) {
	client := newClient()
	defer client.CloseIdleConnections()
	from := lastNumber.Load()
	const chats, turns = 12, 3
	for chat := range uint64(chats) {
		text := testenv.Tokens(5000+chat, 512)
		for turn := range uint64(turns) {
			stored := g.stored()
			n := lastNumber.Add(1)
			if _, why := post(client, g.url, n, fmt.Appendf(nil, `{"model":"sim","max_tokens":4,"prompt":[%s]}`, text), nil); why != "" {
				t.Fatalf("a request failed: %s", why)
			}
			until(t, "the router knows what was stored", func() bool { return g.stored() > stored })
			text += "," + testenv.Tokens(6000+turns*chat+turn, 128)
		}
	}
	lines := logged(t, g.log, tally{from: from, to: lastNumber.Load(), sent: chats * turns})
	served := map[uint64]string{}
	for _, l := range lines {
		chat := (l.number - from - 1) / turns
		if served[chat] == "" {
			served[chat] = l.served
		}
		if l.served != served[chat] {
			t.Errorf("a turn of chat %d was served by %s, the first by %s", chat, l.served, served[chat])
		}
	}
	if len(served) != chats {
		t.Errorf("%d chats", len(served))
	}
}

// stored is how many batches of KV events the router has received.
func (g *gateway) stored() (sum float64) {
	page, err := testenv.Get(g.Context(), routerAdmin+"/metrics")
	if err != nil {
		return 0
	}
	for _, n := range testenv.Samples(page, "warmroute_kv_batches_total", "replica") {
		sum += n
	}
	return sum
}

// TestIstioPool: Istio's gateway calls the router as the endpoint picker of an
// InferencePool; it follows the hints, and reports them. A dead or frozen router
// costs the requests that it has, and none after that.
func TestIstioPool(t *testing.T) {
	m := startMesh(t, "inference-pool", "ENABLE_GATEWAY_API_INFERENCE_EXTENSION=true")
	m.api.put(beside(t, "inference-pool")...)
	config := manifest.Objects(t, m.router.file)[0]
	config["kubernetes"].(object)["kubeconfig"] = m.kubeconfig() // in a pod, its service account
	m.router.file = filepath.Join(m.dir, "warmroute.yaml")
	write(t, m.router.file, config)
	m.poolEndpoints(t)
	m.knows()
	m.router.start()
	m.ready(t, len(podIPs))
	started := lastNumber.Load()
	m.found()
	m.follows(t, started)
	m.chats(t)
	m.offersTLS(t)
	for _, f := range faults[:2] {
		t.Run(f.name, func(t *testing.T) { m.outage(t, f) })
	}
}

// poolEndpoints writes the endpoints of the Service that Istio makes of a pool.
func (m *mesh) poolEndpoints(t *testing.T) {
	t.Helper()
	until(t, "the pool's Service", func() bool {
		var list struct{ Items []object }
		_, answer := m.api.try(http.MethodGet, "/api/v1/namespaces/inference/services?labelSelector=istio.io/inferencepool-name", "", nil)
		if json.Unmarshal(answer, &list) != nil || len(list.Items) == 0 {
			return false
		}
		m.api.endpoints(at(list.Items[0], "metadata", "name").(string), "http-0", 8000, podIPs...)
		return true
	})
}

// outage sends load while a fault of the router begins, which may cost requests in
// this body mode, then while Envoy leaves the router alone, which may cost none.
func (m *mesh) outage(t *testing.T, f fault) {
	t.Helper()
	health := func(flags string) func() bool {
		return func() bool {
			return strings.Contains(m.page("/clusters"), routerCluster+"::"+routerIP+":9002::health_flags::"+flags)
		}
	}
	l := startLoad(m.url, nil)
	defer l.stop()
	f.breaks(&m.gateway)
	until(t, "Envoy sees that", health("/failed"))
	until(t, "streams begun before have ended", func() bool { return m.stat("9002.*upstream_rq_active") == 0 })
	s := l.stop()
	t.Logf("at first: %v", s)
	m.under(t, nil, some, false, func() {})
	f.ends(&m.gateway)
	until(t, "Envoy sees its end", health("healthy"))
	m.followsAll(t, nil)
}
