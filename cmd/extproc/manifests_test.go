package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
	"warmroute/internal/testenv/manifest"
)

// object is a Kubernetes object of an example.
type object = manifest.Object

var at = manifest.At

// manifests reads the objects a kustomization lists, by kind and name.
func manifests(t *testing.T, example string) map[string]object {
	t.Helper()
	dir := filepath.Join("..", "..", "examples", example)
	var k struct {
		APIVersion         string `yaml:"apiVersion"`
		Kind, Namespace    string
		Resources          []string
		ConfigMapGenerator []struct {
			Name  string
			Files []string
		} `yaml:"configMapGenerator"`
		GeneratorOptions struct {
			DisableNameSuffixHash bool `yaml:"disableNameSuffixHash"`
		} `yaml:"generatorOptions"`
	}
	manifest.Decode(t, filepath.Join(dir, "kustomization.yaml"), func(d *yaml.Decoder) error {
		d.KnownFields(true)
		return d.Decode(&k)
	})
	if len(k.ConfigMapGenerator) != 1 || !slices.Equal(k.ConfigMapGenerator[0].Files, []string{"warmroute.yaml"}) {
		t.Errorf("config maps: %+v", k.ConfigMapGenerator)
	}
	out := map[string]object{}
	for _, file := range k.Resources {
		for _, m := range manifest.Objects(t, filepath.Join(dir, file)) {
			name := fmt.Sprint(at(m, "kind"), " ", at(m, "metadata", "name"))
			if out[name] != nil {
				t.Errorf("%s is there twice", name)
			}
			if at(m, "kind") != "Namespace" && at(m, "metadata", "namespace") != k.Namespace {
				t.Errorf("%s is in namespace %v, not %s", name, at(m, "metadata", "namespace"), k.Namespace)
			}
			out[name] = m
		}
	}
	return out
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestExampleDeployments: the router's Deployment and Service of every cluster
// example fit each other and its configuration.
func TestExampleDeployments(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, built, _ := strings.Cut(string(makefile), "\nIMAGE ?= ")
	built, _, _ = strings.Cut(built, "\n")
	for _, example := range []string{"inference-pool", "istio", "envoy-gateway"} {
		t.Run(example, func(t *testing.T) {
			c, err := loadConfig(filepath.Join("..", "..", "examples", example, "warmroute.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			objects := manifests(t, example)
			deployment, service := objects["Deployment warmroute"], objects["Service warmroute"]
			pod := at(deployment, "spec", "template")
			container := at(pod, "spec", "containers", 0)
			equal(t, "image", at(container, "image"), built)
			equal(t, "pull policy", at(container, "imagePullPolicy"), "IfNotPresent") // an image that is only loaded
			equal(t, "pod labels", at(pod, "metadata", "labels"), at(deployment, "spec", "selector", "matchLabels"))
			equal(t, "service selector", at(service, "spec", "selector"), at(pod, "metadata", "labels"))
			equal(t, "listen", c.Listen, fmt.Sprint("0.0.0.0:", at(container, "ports", 0, "containerPort")))
			equal(t, "health", c.Health.Listen, fmt.Sprint("0.0.0.0:", at(container, "ports", 1, "containerPort")))
			equal(t, "target port", at(service, "spec", "ports", 0, "targetPort"), at(container, "ports", 0, "name"))
			for _, probe := range []string{"readinessProbe", "livenessProbe"} {
				equal(t, probe, at(container, probe, "httpGet", "port"), at(container, "ports", 1, "name"))
			}
			equal(t, "arguments", at(container, "args"), []any{"serve", "-config", fmt.Sprint(at(container, "volumeMounts", 0, "mountPath"), "/warmroute.yaml")})
			equal(t, "volume", at(pod, "spec", "volumes", 0, "name"), at(container, "volumeMounts", 0, "name"))
			// Tokenizers are written to a volume that the image's user may write.
			equal(t, "HF_HOME", at(container, "env", 0), object{"name": "HF_HOME", "value": at(container, "volumeMounts", 1, "mountPath")})
			equal(t, "volume of tokenizers", at(pod, "spec", "volumes", 1, "name"), at(container, "volumeMounts", 1, "name"))
			equal(t, "group of volumes", at(pod, "spec", "securityContext", "fsGroup"), 65532)
			protocol := "kubernetes.io/h2c"
			if c.TLS.Enabled() {
				protocol = "http2"
			}
			equal(t, "protocol", at(service, "spec", "ports", 0, "appProtocol"), protocol)
			if !c.Kubernetes.Enabled() {
				equal(t, "token", at(pod, "spec", "automountServiceAccountToken"), false)
			}
		})
	}
}

// TestExampleInferencePool: pool, route, role and configuration name each other.
func TestExampleInferencePool(t *testing.T) {
	c, err := loadConfig("../../examples/inference-pool/warmroute.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !c.Filter.Picker || !c.Filter.AlwaysPick || !c.TLS.SelfSigned {
		t.Errorf("not as a gateway expects a picker: %+v, %+v", c.Filter, c.TLS)
	}
	objects := manifests(t, "inference-pool")
	pool := objects["InferencePool "+c.Kubernetes.Pool]
	route := objects["HTTPRoute "+c.Kubernetes.Pool]
	service := objects["Service "+fmt.Sprint(at(pool, "spec", "endpointPickerRef", "name"))]
	equal(t, "picker port", at(pool, "spec", "endpointPickerRef", "port", "number"), at(service, "spec", "ports", 0, "port"))
	equal(t, "backend", at(route, "spec", "rules", 0, "backendRefs"), []any{object{
		"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": c.Kubernetes.Pool}})
	equal(t, "gateway", objects["Gateway "+fmt.Sprint(at(route, "spec", "parentRefs", 0, "name"))] != nil, true)
	account := at(objects["Deployment warmroute"], "spec", "template", "spec", "serviceAccountName")
	binding := objects["RoleBinding warmroute"]
	equal(t, "account", objects["ServiceAccount "+fmt.Sprint(account)] != nil, true)
	equal(t, "subject", at(binding, "subjects", 0, "name"), account)
	equal(t, "role", objects["Role "+fmt.Sprint(at(binding, "roleRef", "name"))] != nil, true)
	vllm := objects["Deployment "+c.Kubernetes.Pool]
	equal(t, "vLLM's labels", at(vllm, "spec", "template", "metadata", "labels"), at(pool, "spec", "selector", "matchLabels"))
}

// TestExampleServices: the names that the other two examples dial by DNS and
// route to are services of vLLM's pods, on vLLM's port.
func TestExampleServices(t *testing.T) {
	vllm := manifests(t, "inference-pool")["Deployment vllm-qwen3-8b"]
	for _, example := range []string{"istio", "envoy-gateway"} {
		c, err := loadConfig(filepath.Join("..", "..", "examples", example, "warmroute.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		objects := manifests(t, example)
		route := objects["HTTPRoute vllm"]
		backend := at(route, "spec", "rules", 0, "backendRefs", 0)
		equal(t, "gateway", objects["Gateway "+fmt.Sprint(at(route, "spec", "parentRefs", 0, "name"))] != nil, true)
		for name, headless := range map[string]any{fmt.Sprint(at(backend, "name")): nil, "vllm-pods": "None"} {
			s := objects["Service "+name]
			equal(t, name+" selector", at(s, "spec", "selector"), at(vllm, "spec", "template", "metadata", "labels"))
			equal(t, name+" port", at(s, "spec", "ports", 0, "targetPort"), at(vllm, "spec", "template", "spec", "containers", 0, "ports", 0, "containerPort"))
			equal(t, name+" cluster IP", at(s, "spec", "clusterIP"), headless)
		}
		equal(t, "DNS name", c.Fleet.DNS[0].Name, fmt.Sprintf("vllm-pods.inference.svc.cluster.local:%v", at(backend, "port")))
	}
}

// waitFor polls a page until it holds a text.
func waitFor(t *testing.T, url, text string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		resp, err := client.Get(url)
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK && strings.Contains(string(b), text) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not say %q: %v", url, text, err)
		}
	}
}

// completion sends a completion, with a destination of the client's own, and
// returns which replica served.
func completion(t *testing.T, url, body, destination string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if destination != "" {
		req.Header.Set(envoy.HeaderDestination, destination)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", resp.Status, b, err)
	}
	return resp.Header.Get(envoy.HeaderServed)
}
