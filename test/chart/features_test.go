package chart

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"warmroute/render/testkit/must"
)

// deployed renders values and returns the Deployment.
func deployed(t *testing.T, values string) *appsv1.Deployment {
	t.Helper()
	return find[*appsv1.Deployment](t, render(t, values), "warm-warmroute")
}

// TestRestart: exactly the settings that the reference of the configuration says take
// effect at a restart give the pods another annotation.
func TestRestart(t *testing.T) {
	text := must.Get(os.ReadFile("../../cmd/extproc/testdata/reference.json"))(t)
	var fields []struct{ Path, Type, Applies string }
	must.Do(t, json.Unmarshal(text, &fields))
	c := must.Get(loader.Load(dir))(t)
	c.Templates = slices.DeleteFunc(c.Templates, func(f *common.File) bool { return f.Name != "templates/_helpers.tpl" })
	c.Templates = append(c.Templates, &common.File{Name: "templates/restart", Data: []byte(`{{ include "warmroute.restart" . }}`)})
	checksum := func(config map[string]any) string {
		values := map[string]any{"pool": map[string]any{"name": "p"}, "config": config}
		all := must.Get(util.ToRenderValuesWithSchemaValidation(c, values, common.ReleaseOptions{Name: "warm"}, common.DefaultCapabilities, true))(t)
		files := must.Get(engine.Render(c, all))(t)
		return files["warmroute/templates/restart"]
	}
	before, restarts := checksum(nil), 0
	if given := deployed(t, `pool: {name: p}`).Spec.Template.Annotations["checksum/restart"]; len(given) != 64 {
		t.Fatalf("the annotation is %q", given)
	}
	other := map[string]any{
		"boolean": "${SWITCH}", "integer": 12345, "number": 0.125, "string": "other", "duration": "77s",
		"list of strings": []any{"other"}, "list of sections": []any{map[string]any{}}, "mapping of sections": map[string]any{"m": map[string]any{}}, "mapping of numbers": map[string]any{},
	}
	for _, f := range fields {
		if f.Applies == "" || strings.ContainsAny(f.Path, "[*") {
			continue
		}
		value, ok := other[f.Type]
		if !ok {
			t.Fatalf("%s has the type %q", f.Path, f.Type)
		}
		if f.Path == "listen" || f.Path == "health.listen" {
			value = "0.0.0.0:12345" // which other pods reach
		}
		names := strings.Split(f.Path, ".")
		for _, name := range slices.Backward(names) {
			value = map[string]any{name: value}
		}
		config, _ := value.(map[string]any)
		if names[0] == "kubernetes" && len(names) > 2 {
			continue // the settings of the pool's replicas, which change as one
		}
		restart := f.Applies == "restart"
		if restart {
			restarts++
		}
		before := before
		if f.Path == "filter.mode" || f.Path == "filter.share" { // a gateway that needs every hint takes no others
			before = checksum(map[string]any{"filter": map[string]any{"always_pick": false}})
			config["filter"].(map[string]any)["always_pick"] = false
		}
		if changed := checksum(config) != before; changed != restart {
			t.Errorf("%s: new pods %v, and it takes effect at %s", f.Path, changed, f.Applies)
		}
	}
	if restarts < 30 {
		t.Errorf("only %d settings need a restart", restarts)
	}
}

// TestKeys: the router reads the API key, certificates and authorities of the Secrets that
// values name, from the files in which they are mounted.
func TestKeys(t *testing.T) {
	r := &rendered{t: t, objects: render(t, cases["own keys and certificates"].values)}
	must.Do(t, yaml.Unmarshal([]byte(configOf(t, r.objects)), &r.config))
	pod := find[*appsv1.Deployment](t, r.objects, "warm-warmroute").Spec.Template.Spec
	secrets := map[string]*corev1.SecretVolumeSource{}
	for _, m := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		secrets[m.MountPath] = pod.Volumes[i].Secret
	}
	for setting, want := range map[string]string{
		"tls cert_file": "extproc tls.crt", "tls key_file": "extproc tls.key", "tls client_ca_file": "gateways ca.crt",
		"fleet tls ca_file": "vllm-ca ca.crt", "fleet tls cert_file": "router tls.crt", "fleet tls key_file": "router tls.key", "fleet token_file": "vllm api-key",
		"peers tls cert_file": "peers-tls tls.crt", "peers tls key_file": "peers-tls tls.key", "peers tls ca_file": "peers-tls ca.crt", "peers token_file": "peers token",
		"admin token_file": "admin word",
	} {
		path, _ := r.at(strings.Fields(setting)...).(string)
		folder, file := path[:max(0, strings.LastIndex(path, "/"))], path[strings.LastIndex(path, "/")+1:]
		from := secrets[folder]
		if from == nil {
			t.Errorf("%s: %q is in no Secret", setting, path)
			continue
		}
		for _, item := range from.Items {
			if item.Path == file {
				file = item.Key
			}
		}
		if got := from.SecretName + " " + file; got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
	if r.at("fleet", "tls", "enabled") != true || r.at("tls", "self_signed") != nil {
		t.Errorf("replicas with TLS %v, a self-signed certificate %v", r.at("fleet", "tls", "enabled"), r.at("tls", "self_signed"))
	}
	for _, e := range pod.Containers[0].Env {
		if e.Name == "HF_TOKEN" && (e.ValueFrom.SecretKeyRef.Name != "hub" || e.ValueFrom.SecretKeyRef.Key != "HF_TOKEN") {
			t.Errorf("HF_TOKEN is of %+v", e.ValueFrom.SecretKeyRef)
		}
	}
}

// TestSpread: several routers are spread over hosts and zones, unless values say how, and
// a drain stops one at a time.
func TestSpread(t *testing.T) {
	three := deployed(t, cases["three routers"].values)
	for i, over := range []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"} {
		spread := three.Spec.Template.Spec.TopologySpreadConstraints
		if len(spread) != 2 || spread[i].TopologyKey != over || spread[i].WhenUnsatisfiable != corev1.ScheduleAnyway || !reflect.DeepEqual(spread[i].LabelSelector, three.Spec.Selector) {
			t.Fatalf("%s: %+v", over, spread)
		}
	}
	if spread := deployed(t, cases["pool"].values).Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 0 {
		t.Errorf("one router: %+v", spread)
	}
	if spread := deployed(t, cases["sidecars"].values).Spec.Template.Spec.TopologySpreadConstraints; len(spread) != 1 || spread[0].LabelSelector != nil {
		t.Errorf("values' own: %+v", spread)
	}
	budget := find[*policyv1.PodDisruptionBudget](t, render(t, `{routers: 4, pool: {name: p}, podDisruptionBudget: {maxUnavailable: "50%"}}`), "warm-warmroute")
	if budget.Spec.MaxUnavailable.String() != "50%" || *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
		t.Errorf("%+v", budget.Spec)
	}
}

// TestMonitoring: the chart has the rules and the dashboard of the example, of the job by
// whose name its monitor makes Prometheus call the router.
func TestMonitoring(t *testing.T) {
	objects := render(t, cases["monitored"].values)
	alerts := must.Get(os.ReadFile("../../examples/monitoring/alerts.yaml"))(t)
	var want monitoring.PrometheusRuleSpec
	must.Do(t, yaml.UnmarshalStrict([]byte(strings.NewReplacer(`job="warmroute"`, `job="router"`, `"docs/`, `"https://git.example/warmroute/docs/`).Replace(string(alerts))), &want))
	rule := find[*monitoring.PrometheusRule](t, objects, "warm-router")
	if len(want.Groups) == 0 || !reflect.DeepEqual(rule.Spec, want) || rule.Labels["release"] != "prometheus" {
		t.Errorf("%v\n%+v, want\n%+v", rule.Labels, rule.Spec, want)
	}
	monitor := find[*monitoring.ServiceMonitor](t, objects, "warm-router")
	if job := monitor.Labels[monitor.Spec.JobLabel]; job != "router" {
		t.Errorf("the job is %q", job)
	}
	at := monitor.Spec.Endpoints[0].Port
	if !slices.ContainsFunc(find[*corev1.Service](t, objects, "warm-router").Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == at }) {
		t.Errorf("the Service has no port %q", at)
	}
	dashboard := must.Get(os.ReadFile("../../examples/monitoring/dashboard.json"))(t)
	m := find[*corev1.ConfigMap](t, objects, "warm-router-dashboard")
	if strings.TrimSpace(m.Data["warmroute.json"]) != strings.TrimSpace(string(dashboard)) || m.Labels["grafana_dashboard"] != "1" || m.Annotations["grafana_folder"] != "LLM" {
		t.Errorf("%v %v, and the dashboard of %d bytes has %d", m.Labels, m.Annotations, len(dashboard), len(m.Data["warmroute.json"]))
	}
}

// TestExtra: environment and volumes of values are the container's.
func TestExtra(t *testing.T) {
	pod := deployed(t, cases["volumes and variables"].values).Spec.Template.Spec
	c := pod.Containers[0]
	if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "RANKED" && e.Value == "2" }) {
		t.Errorf("%+v", c.Env)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "traces" && m.MountPath == "/var/lib/warmroute" }) {
		t.Errorf("%+v", c.VolumeMounts)
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "traces" && v.EmptyDir != nil }) {
		t.Errorf("%+v", pod.Volumes)
	}
}

// TestNotes: what Helm prints leads to the page, with its port and its token.
func TestNotes(t *testing.T) {
	for values, want := range map[string][]string{
		`pool: {name: p}`: {"svc:9002", "InferencePool p", "port-forward deploy/warm-warmroute 9090 &", "http://127.0.0.1:9090/readyz", "open http://127.0.0.1:9090/dashboard/",
			`get secret warm-warmroute-admin-token -o go-template='{{ index .data "token" | base64decode }}'`},
		`{pool: {name: p}, admin: {tokenSecret: a/word}, config: {admin: {listen: "127.0.0.1:9190"}}}`: {"deploy/warm-warmroute 9190 &", "http://127.0.0.1:9190/dashboard/", `get secret a -o go-template='{{ index .data "word"`},
	} {
		notes := must.Get(notesOf(values))(t)
		for _, w := range want {
			if !strings.Contains(notes, w) {
				t.Errorf("%s: no %q in\n%s", values, w, notes)
			}
		}
	}
}

// TestPortsAndMemoryFollowTheConfiguration: the pod, its probes and the Service have the ports that
// the router listens on, the index takes half of the memory limit at most,
// and the pod may take as long to end as the router.
func TestPortsAndMemoryFollowTheConfiguration(t *testing.T) {
	for values, want := range map[string][4]int64{ // ports, blocks, and seconds to end
		`{}`: {9002, 9006, 2 << 30 / 192, 30},
		`{config: {listen: "0.0.0.0:9102", health: {listen: ":9106"}}}`:                 {9102, 9106, 2 << 30 / 192, 30},
		`{resources: {limits: {memory: 512Mi}}}`:                                        {9002, 9006, 512 << 20 / 192, 30},
		`{resources: {limits: {memory: 1.5G}}, config: {index: {max_scopes: 7}}}`:       {9002, 9006, 1_500_000_000 / 192, 30},
		`{resources: {limits: {memory: 64Gi}}}`:                                         {9002, 9006, 67108864, 30},
		`{resources: {limits: {cpu: 1, memory: null}}}`:                                 {9002, 9006, 0, 30},
		`{resources: {limits: {memory: 1Gi}}, config: {index: {max_blocks: 20000000}}}`: {9002, 9006, 20000000, 30},
		`{resources: {limits: {memory: 2147483648}}}`:                                   {9002, 9006, 2 << 30 / 192, 30},
		`{resources: {limits: {memory: 2e9}}}`:                                          {9002, 9006, 2_000_000_000 / 192, 30},
		`{resources: {limits: {memory: 4000000000000m}}}`:                               {9002, 9006, 4_000_000_000 / 192, 30},
		`{config: {lame_duck: 1m30s}}`:                                                  {9002, 9006, 2 << 30 / 192, 115},
		`{config: {lame_duck: 1500ms}}`:                                                 {9002, 9006, 2 << 30 / 192, 27},
		`{config: {filter: {mode: shadow, always_pick: false}}}`:                        {9002, 9006, 2 << 30 / 192, 30},
	} {
		objects := render(t, strings.Replace(values, "{", "{pool: {name: p}, ", 1))
		ports := map[string]int64{}
		pod := find[*appsv1.Deployment](t, objects, "warm-warmroute").Spec.Template.Spec
		for _, p := range pod.Containers[0].Ports {
			ports[p.Name] = int64(p.ContainerPort)
		}
		for _, p := range find[*corev1.Service](t, objects, "warm-warmroute").Spec.Ports {
			if int64(p.Port) != ports[p.Name] || p.TargetPort.String() != p.Name {
				t.Errorf("%s: port %s of the Service is %d, for %s of the pod, which is %d", values, p.Name, p.Port, &p.TargetPort, ports[p.Name])
			}
		}
		var config struct {
			Index struct {
				MaxBlocks int64 `json:"max_blocks"`
			}
		}
		must.Do(t, yaml.Unmarshal([]byte(configOf(t, objects)), &config))
		if got := [4]int64{ports["grpc"], ports["health"], config.Index.MaxBlocks, *pod.TerminationGracePeriodSeconds}; got != want {
			t.Errorf("%s: %v, want %v", values, got, want)
		}
	}
}
