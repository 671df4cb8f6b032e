//go:build gateways

package gateways

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// cluster is an API server with its etcd, and no kubelet.
type cluster struct {
	*testing.T
	dir    string
	server *testenv.Process
	client *http.Client
	admin  string // bearer token of an administrator
	kinds  map[string]kind
}

// kind is the place of objects of one kind in the API.
type kind struct {
	plural     string
	namespaced bool
}

// apiServer is its address: the gate's other side.
const (
	apiServer = "127.0.0.1:6443"
	etcd      = "http://127.0.0.1:2379"
)

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, dir: t.TempDir(), admin: "administrator-of-the-test", kinds: map[string]kind{}}
	c.client = &http.Client{Timeout: 30 * time.Second, Transport: insecure()}
	t.Cleanup(c.client.CloseIdleConnections)
	must.Do(t, os.WriteFile(filepath.Join(c.dir, "tokens.csv"), []byte(c.admin+`,administrator,1,"system:masters"`+"\n"), 0o600))
	writeKey(t, filepath.Join(c.dir, "accounts.pem"))
	store := start(t, c.dir, "etcd", installed(t, "etcd"), "--data-dir", filepath.Join(c.dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level", "warn")
	answers(t, store, etcd+"/health")
	c.startServer()
	return c
}

// startServer starts the API server and waits until it is ready.
func (c *cluster) startServer() {
	c.Helper()
	key := filepath.Join(c.dir, "accounts.pem")
	c.server = start(c.T, c.dir, "kube-apiserver", installed(c.T, "kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--advertise-address", podIP(9), "--secure-port", "6443",
		"--cert-dir", filepath.Join(c.dir, "certificates"), "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-account-issuer", "https://kubernetes.default.svc", "--token-auth-file", filepath.Join(c.dir, "tokens.csv"),
		"--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.99.1.0/24", "--disable-admission-plugins", "ServiceAccount")
	until(c.T, "the API server is ready", func() bool {
		select {
		case <-c.server.Done():
			c.Fatalf("the API server ended: %s", c.server.Tail())
		default:
		}
		code, _ := c.try(http.MethodGet, "/readyz", "", nil)
		return code == http.StatusOK
	})
}

// try sends a request as the administrator; 0: no answer.
func (c *cluster) try(method, path, contentType string, body []byte) (int, []byte) {
	req := must.Get(http.NewRequestWithContext(c.Context(), method, "https://"+apiServer+path, bytes.NewReader(body)))(c)
	req.Header.Set("Authorization", "Bearer "+c.admin)
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, b
}

// do is try where an answer of 2xx is expected, and returns the object answered.
func (c *cluster) do(method, path, contentType string, body any) object {
	c.Helper()
	var text []byte
	if body != nil { // "null" would replace the query's values
		text = must.Get(json.Marshal(body))(c)
	}
	code, answer := c.try(method, path, contentType, text)
	if code/100 != 2 {
		c.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
	var o object
	if err := json.Unmarshal(answer, &o); err != nil {
		c.Fatalf("%s %s: %v", method, path, err)
	}
	return o
}

// path returns an object's path, which it finds in the API server's list of resources.
func (c *cluster) path(o object) string {
	c.Helper()
	version := fmt.Sprint(o["apiVersion"])
	root := "/apis/" + version
	if !strings.Contains(version, "/") {
		root = "/api/" + version
	}
	id := version + " " + fmt.Sprint(o["kind"])
	if _, ok := c.kinds[id]; !ok {
		code, answer := c.try(http.MethodGet, root, "", nil)
		var list struct {
			Resources []struct {
				Name       string
				Kind       string
				Namespaced bool
			}
		}
		if err := json.Unmarshal(answer, &list); code != http.StatusOK || err != nil {
			c.Fatalf("%s is not served: %d %s", version, code, answer)
		}
		for _, r := range list.Resources {
			if !strings.Contains(r.Name, "/") {
				c.kinds[version+" "+r.Kind] = kind{r.Name, r.Namespaced}
			}
		}
	}
	k, ok := c.kinds[id]
	if !ok {
		c.Fatalf("%s is not served", id)
	}
	if k.namespaced {
		return fmt.Sprintf("%s/namespaces/%v/%s/%v", root, at(o, "metadata", "namespace"), k.plural, at(o, "metadata", "name"))
	}
	return fmt.Sprintf("%s/%s/%v", root, k.plural, at(o, "metadata", "name"))
}

// apply creates or changes an object, or with dry only validates the change;
// unknown and repeated fields are refused.
func (c *cluster) apply(o object, dry bool) (int, string) {
	c.Helper()
	query := "?fieldManager=test&force=true&fieldValidation=Strict"
	if dry {
		query += "&dryRun=All"
	}
	text := must.Get(json.Marshal(o))(c)
	code, answer := c.try(http.MethodPatch, c.path(o)+query, "application/apply-patch+yaml", text)
	return code, string(answer)
}

// put applies an object and expects no objection.
func (c *cluster) put(objects ...object) {
	c.Helper()
	for _, o := range objects {
		if code, answer := c.apply(o, false); code/100 != 2 {
			c.Fatalf("%v %v: %d %s", o["kind"], at(o, "metadata", "name"), code, answer)
		}
	}
}

// define installs the resource definitions of folders in .cache/gateways/crds.
func (c *cluster) define(folders ...string) {
	c.Helper()
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(installed(c.T, "crds"), folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			c.Fatalf("no resource definitions of %s: %v", folder, err)
		}
		for _, file := range files {
			for _, o := range manifest.Objects(c.T, file) {
				if o["kind"] != "CustomResourceDefinition" {
					continue
				}
				c.put(o)
				until(c.T, fmt.Sprint(at(o, "metadata", "name"), " established"), func() bool {
					_, answer := c.try(http.MethodGet, c.path(o), "", nil)
					return established(answer)
				})
			}
		}
	}
}

func established(answer []byte) bool {
	var o object
	if json.Unmarshal(answer, &o) != nil {
		return false
	}
	conditions, _ := at(o, "status", "conditions").([]any)
	for _, condition := range conditions {
		if at(condition, "type") == "Established" && at(condition, "status") == "True" {
			return true
		}
	}
	return false
}

// TestAdmission: a real API server with the resource definitions of the examples'
// gateways takes the examples' objects, in strict mode.
func TestAdmission(t *testing.T) {
	c := startCluster(t)
	c.define("gateway-api", "envoy-gateway", "inference-extension", "istio")
	c.put(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "inference"}})
	for _, name := range []string{"inference-pool", "istio", "envoy-gateway"} {
		t.Run(name, func(t *testing.T) {
			objects := append(example(t, name), beside(t, name)...)
			for _, o := range inReadme(t, name) {
				if o["kind"] != "EnvoyGateway" { // a configuration file, which TestEnvoyGateway reads
					objects = append(objects, o)
				}
			}
			c.admits(t, objects)
		})
	}
	c.put(object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "models"}})
	for name, objects := range ofChart(t) {
		t.Run("chart, "+name, func(t *testing.T) { c.admits(t, objects) })
	}
}

// admits checks that the API server takes objects, and refuses each with a misspelt field:
// nothing is let through unread.
func (c *cluster) admits(t *testing.T, objects []object) {
	t.Helper()
	for _, o := range objects {
		if code, answer := c.apply(o, true); code/100 != 2 {
			t.Errorf("%v %v: %d %s", o["kind"], at(o, "metadata", "name"), code, answer)
		}
	}
	for _, o := range objects {
		spec, ok := o["spec"].(object)
		if !ok {
			continue
		}
		spec["mispelt"] = true
		if code, _ := c.apply(o, true); code/100 == 2 {
			t.Errorf("%v %v may hold any field", o["kind"], at(o, "metadata", "name"))
		}
	}
}

// ofChart returns the objects that each use of the chart renders, but for those of the
// Prometheus Operator, whose definitions this API server does not have.
func ofChart(t *testing.T) map[string][]object {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestChart$", ".", "-objects", dir)
	cmd.Dir = filepath.Join(checkout.Root(), "test", "chart")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%v %v", files, err)
	}
	uses := map[string][]object{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		for _, o := range manifest.Objects(t, file) {
			if o["apiVersion"] == "monitoring.coreos.com/v1" {
				continue
			}
			if at(o, "metadata", "namespace") == nil {
				o["metadata"].(object)["namespace"] = "inference" //nolint:forcetypeassert // every object has metadata
			}
			uses[name] = append(uses[name], o)
		}
	}
	return uses
}

// beside reads the objects in an example's files that are applied by themselves.
func beside(t *testing.T, name string) (out []object) {
	t.Helper()
	for _, file := range []string{"istio.yaml", "models.yaml", "hold.yaml"} {
		path := filepath.Join(checkout.Root(), "examples", name, file)
		if _, err := os.Stat(path); err == nil {
			out = append(out, manifest.Objects(t, path)...)
		}
	}
	return out
}

// inReadme reads the objects in blocks of YAML in an example's README.
func inReadme(t *testing.T, name string) (out []object) {
	t.Helper()
	root := checkout.Root()
	text := must.Get(os.ReadFile(filepath.Join(root, "examples", name, "README.md")))(t)
	for i, block := range strings.Split(string(text), "```yaml\n") {
		if i == 0 {
			continue
		}
		block, _, _ = strings.Cut(block, "```")
		file := filepath.Join(t.TempDir(), "block.yaml")
		must.Do(t, os.WriteFile(file, []byte(block), 0o600))
		out = append(out, manifest.Objects(t, file)...)
	}
	return out
}
