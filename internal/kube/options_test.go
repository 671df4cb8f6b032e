package kube

import (
	"slices"
	"strings"
	"testing"

	"warmroute/internal/config"
)

func TestOptionsValidate(t *testing.T) {
	type file struct {
		Kubernetes Options `yaml:"kubernetes"`
	}
	for text, want := range map[string][]string{
		`{}`:                       nil,
		`kubernetes: {pool: vllm}`: nil,
		`kubernetes: {pool: vllm, namespace: a, kubeconfig: /k, replica: {tenant: acme}}`: nil,
		`kubernetes: {pool: V_llm, namespace: "-a"}`: {
			`f:1: kubernetes.namespace: "-a" is not the name of a namespace`,
			`f:1: kubernetes.pool: "V_llm" is not the name of an object`,
		},
		`kubernetes: {namespace: a, kubeconfig: /k}`: {
			`f:1: kubernetes.kubeconfig: "/k" is given, but pool is not`,
			`f:1: kubernetes.namespace: "a" is given, but pool is not`,
		},
		`kubernetes: {pool: vllm, replica: {address: "10.0.0.1:1", name: n, block_size: -1, events: [{endpoint: x}]}}`: {
			`f:1: kubernetes.replica.address: "10.0.0.1:1" is given, but addresses are found here`,
			`f:1: kubernetes.replica.block_size: -1 is not from 1 to 1048576 tokens`,
			`f:1: kubernetes.replica.events[0].endpoint: "x" is not of the form tcp://host:port`,
			`f:1: kubernetes.replica.name: "n" is given, but it would name every replica found`,
		},
	} {
		_, err := config.Parse("f", []byte(text), file{}, func(string) (string, bool) { return "", false })
		var got []string
		if err != nil {
			got = strings.Split(err.Error(), "\n")
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s\ngot  %q\nwant %q", text, got, want)
		}
	}
}
