// Package chart holds the test of charts/warmroute, read by Helm's own library.
package chart

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"warmroute/render/testkit/must"
)

const dir = "../../charts/warmroute"

// written is the folder into which TestChart writes the objects of each use.
var written = flag.String("objects", "", "write the rendered objects into this folder, a file of YAML for each use")

// render returns the objects that values make of the chart, each decoded
// strictly: a field that the API does not have is an error.
func render(t *testing.T, values string) []runtime.Object {
	t.Helper()
	files := must.Get(try(values))(t)
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		must.Do(t, add(s))
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, s, s, json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for name, text := range files {
		for _, document := range strings.Split(text, "\n---") {
			if !strings.Contains(document, "kind:") {
				continue
			}
			o, _, err := strict.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, document)
				continue
			}
			objects = append(objects, o)
		}
	}
	return objects
}

const notesFile = "warmroute/templates/NOTES.txt"

// try renders the chart's objects, by their template's name.
func try(values string) (map[string]string, error) {
	files, err := tryWith(values, nil)
	delete(files, notesFile)
	return files, err
}

// notesOf renders what Helm prints after an installation.
func notesOf(values string) (string, error) {
	files, err := tryWith(values, nil)
	return files[notesFile], err
}

// tryWith renders the chart's templates and further ones, by their file's name.
func tryWith(values string, further []*common.File) (map[string]string, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	c.Templates = append(c.Templates, further...)
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(c, given, common.ReleaseOptions{Name: "warm", Namespace: "inference", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// write writes objects as a file of YAML documents.
func write(t *testing.T, file string, objects []runtime.Object) {
	t.Helper()
	var all []byte
	for _, o := range objects {
		text := must.Get(yaml.Marshal(o))(t)
		all = fmt.Appendf(all, "---\n%s", text)
	}
	must.Do(t, os.WriteFile(file, all, 0o600))
}

// configOf returns the router's configuration among objects.
func configOf(t *testing.T, objects []runtime.Object) string {
	t.Helper()
	for _, o := range objects {
		if m, is := o.(*corev1.ConfigMap); is && m.Data["warmroute.yaml"] != "" {
			return m.Data["warmroute.yaml"]
		}
	}
	t.Fatal("no object has the router's configuration")
	return ""
}

// find returns the only object of a type that has the name.
func find[T runtime.Object](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		is, ok := o.(T)
		if meta, has := o.(interface{ GetName() string }); ok && has && meta.GetName() == name {
			found = append(found, is)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d %T are called %s, want 1", len(found), *new(T), name)
	}
	return found[0]
}

// cases are the uses that docs/installation.md describes, and how many objects
// each makes.
var cases = map[string]struct {
	values  string
	objects int
}{
	"addresses": {`
config: {fleet: {replicas: [{address: "10.0.0.1:8000"}]}}`, 6},
	"pool": {`
pool: {name: vllm-qwen3-8b}
monitors: {serviceMonitor: true}`, 9},
	"pool elsewhere": {`
pool: {name: vllm, namespace: models}`, 8},
	"three routers": {`
routers: 3
pool: {name: vllm}
monitors: {podMonitor: true, labels: {release: prometheus}}`, 12},
	"sidecars": {`
sidecar: {enabled: true, tokenSecret: index, tlsSecret: index-tls}
admin: {tokenSecret: admin}
networkPolicy: {enabled: false}
models: {tokenSecret: hub}
image: {repository: registry.example/warmroute, pullSecrets: [{name: pull}]}
nodeSelector: {disk: ssd}
tolerations: [{key: cpu, operator: Exists}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}]
affinity: {nodeAffinity: {}}
priorityClassName: high
podAnnotations: {a: b}
podLabels: {c: d}
service: {annotations: {e: f}}
serviceAccount: {annotations: {g: h}}
config: {fleet: {replicas: [{address: "10.0.0.1:8000", sidecar: true}]}}`, 4},
	"own keys and certificates": {`
routers: 2
pool: {name: vllm}
extproc: {tlsSecret: extproc, clientCASecret: gateways}
replicas: {tokenSecret: vllm/api-key, caSecret: vllm-ca, tlsSecret: router}
admin: {tokenSecret: admin/word}
peers: {tokenSecret: peers, tlsSecret: peers-tls}
models: {tokenSecret: hub/HF_TOKEN}`, 9},
	"monitored": {`
nameOverride: router
pool: {name: vllm}
monitors: {serviceMonitor: true, rules: true, documents: "https://git.example/warmroute/", dashboard: true, labels: {release: prometheus}, dashboardAnnotations: {grafana_folder: LLM}}`, 11},
	"volumes and variables": {`
pool: {name: vllm}
extraEnv: [{name: RANKED, value: "2"}]
extraVolumes: [{name: traces, emptyDir: {sizeLimit: 1Gi}}]
extraVolumeMounts: [{name: traces, mountPath: /var/lib/warmroute, readOnly: true}]
podDisruptionBudget: {maxUnavailable: 50%}
config: {filter: {mode: shadow, always_pick: false, trace_file: /var/lib/warmroute/trace.jsonl, max_streams: "${RANKED:-2}", body_wait: 4s}}`, 8},
}

// TestChart: Helm's linter reports nothing, every object decodes strictly,
// and the router accepts the configuration that the chart writes.
func TestChart(t *testing.T) {
	extproc := filepath.Join(t.TempDir(), "extproc")
	build := exec.Command("go", "build", "-tags", "kube", "-o", extproc, "./cmd/extproc")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var values map[string]any
			must.Do(t, yaml.Unmarshal([]byte(c.values), &values))
			for _, m := range lint.RunAll(dir, values, "inference").Messages {
				if m.Severity > support.InfoSev {
					t.Errorf("lint: %s", m)
				}
			}
			objects := render(t, c.values)
			if *written != "" {
				write(t, filepath.Join(*written, name+".yaml"), objects)
			}
			if len(objects) != c.objects {
				t.Errorf("%d objects, want %d", len(objects), c.objects)
			}
			config := configOf(t, objects)
			config = strings.NewReplacer("/etc/warmroute-", certificates(t)+"/", "/var/lib/warmroute", t.TempDir()).Replace(config) // the cluster's
			check := exec.Command(extproc, "check", "-")
			check.Stdin = bytes.NewBufferString(config)
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("extproc check: %v: %s\n%s", err, out, config)
			}
		})
	}
}

// TestOverride: a value under config takes precedence over the chart's.
func TestOverride(t *testing.T) {
	config := configOf(t, render(t, `{pool: {name: p}, config: {filter: {picker: false}, admin: {listen: "127.0.0.1:9091"}}}`))
	for _, want := range []string{"picker: false", "always_pick: true", "listen: 127.0.0.1:9091", "pool: p"} {
		if !strings.Contains(config, want) {
			t.Errorf("%q is missing:\n%s", want, config)
		}
	}
}

// TestSidecarTemplate: another chart's pod takes kvsub's container from the named template,
// with the certificate and the token where it names their volumes.
func TestSidecarTemplate(t *testing.T) {
	for given, want := range map[string][]string{
		``:                             nil,
		`"tls" "certs"`:                {"certs /etc/warmroute-index-tls -index-cert=/etc/warmroute-index-tls/tls.crt"},
		`"tls" "certs" "token" "word"`: {"certs /etc/warmroute-index-tls -index-cert=/etc/warmroute-index-tls/tls.crt", "word /etc/warmroute-index-token -index-token-file=/etc/warmroute-index-token/token"},
	} {
		files := must.Get(tryWith("pool: {name: p}", []*common.File{{Name: "templates/replica.yaml", Data: fmt.Appendf(nil,
			`{{ include "warmroute.sidecar" (dict "image" "warmroute:0.1.0" "index" "warmroute:9003" "model" "m" %s) }}`, given)}}))(t)
		var containers []corev1.Container
		if err := yaml.UnmarshalStrict([]byte(files["warmroute/templates/replica.yaml"]), &containers); err != nil || len(containers) != 1 {
			t.Fatalf("%d containers, %v\n%s", len(containers), err, files["warmroute/templates/replica.yaml"])
		}
		c := containers[0]
		if len(c.VolumeMounts) != len(want) {
			t.Errorf("%s: volumes %v", given, c.VolumeMounts)
			continue
		}
		for i, m := range c.VolumeMounts {
			name, rest, _ := strings.Cut(want[i], " ")
			path, arg, _ := strings.Cut(rest, " ")
			if m.Name != name || m.MountPath != path || !m.ReadOnly || !slices.Contains(c.Args, arg) {
				t.Errorf("%s: %+v and %v, want %s", given, m, c.Args, want[i])
			}
		}
	}
}
