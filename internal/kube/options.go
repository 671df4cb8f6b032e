package kube

import (
	"errors"
	"strings"

	"warmroute/internal/fleet"
	"warmroute/internal/problems"
)

// Options names an InferencePool. The zero value disables the source.
type Options struct {
	Pool       string `yaml:"pool,omitempty"`       // name of the InferencePool; "" = no Kubernetes
	Namespace  string `yaml:"namespace,omitempty"`  // its namespace; "" = that of the service account or kubeconfig
	Kubeconfig string `yaml:"kubeconfig,omitempty"` // file with the access to the cluster; "" = the pod's service account
	// Replica are the settings of every replica found. If a pool has several ports, an event source's rank is the
	// number of its port, from 0.
	Replica fleet.ReplicaOptions `yaml:"replica,omitempty"`
}

// ErrNotBuilt reports that this binary has no Kubernetes client.
var ErrNotBuilt = errors.New("kubernetes.pool: this binary is built without Kubernetes; use one that is built with `go build -tags kube`, as in the container image")

// Enabled reports whether o names a pool.
func (o Options) Enabled() bool { return o.Pool != "" }

// Supported returns ErrNotBuilt if o needs a client that this binary lacks.
func (o Options) Supported() error {
	if o.Enabled() && !Built {
		return ErrNotBuilt
	}
	return nil
}

// RoleLabel is llm-d's label with which a pod says its part in requests with prefill and
// decode on two replicas: prefill, decode, prefill-decode.
const RoleLabel = "llm-d.ai/role"

// Validate returns every problem, joined, each as "field: sentence".
func (o Options) Validate() error {
	var p problems.List
	p.Refuse(o.Pool != "" && !validName(o.Pool, 253), "pool", "%q is not the name of an object", o.Pool)
	p.Refuse(o.Namespace != "" && !validName(o.Namespace, 63), "namespace", "%q is not the name of a namespace", o.Namespace)
	p.Refuse(!o.Enabled() && o.Namespace != "", "namespace", "%q is given, but pool is not", o.Namespace)
	p.Refuse(!o.Enabled() && o.Kubeconfig != "", "kubeconfig", "%q is given, but pool is not", o.Kubeconfig)
	p.Add("replica.", o.Replica.ValidateTemplate())
	return p.Err()
}

// validName reports whether s can be an object's name: labels of lower-case
// letters, digits and -, with dots between.
func validName(s string, longest int) bool {
	return len(s) <= longest && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && strings.Trim(s, "-.") == s
}
