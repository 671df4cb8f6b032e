package stage

import (
	"bytes"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/envoy"
)

func TestWithoutExtProc(t *testing.T) {
	var b bytes.Buffer
	if err := envoy.WriteBootstrap(&b, envoy.Options{Replicas: []string{"127.0.0.1:8000"}}); err != nil {
		t.Fatal(err)
	}
	plain, err := withoutExtProc(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(plain), "ext_proc.v3") || !strings.Contains(string(plain), "least_request") {
		t.Errorf("bootstrap without ext_proc:\n%s", plain)
	}
	var v any
	if err := yaml.Unmarshal(plain, &v); err != nil {
		t.Error(err)
	}
	if _, err := withoutExtProc(plain); err == nil {
		t.Error("a bootstrap without the filter was taken for one with it")
	}
}
