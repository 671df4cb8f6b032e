package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/must"
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
	makefile := must.Get(os.ReadFile("../../Makefile"))(t)
	_, built, _ := strings.Cut(string(makefile), "\nIMAGE ?= ")
	built, _, _ = strings.Cut(built, "\n")
	for _, example := range []string{"inference-pool", "istio", "envoy-gateway"} {
		t.Run(example, func(t *testing.T) {
			c := must.Get(loadConfig(filepath.Join("..", "..", "examples", example, "warmroute.yaml")))(t)
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
