package kube

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"warmroute/internal/fleet"
)

// object is a Kubernetes object, decoded from JSON.
type object = map[string]any

// pool is the content of an InferencePool.
type pool struct {
	selector string // "key=value,…" by ascending key, the form of the API server
	ports    []uint16
	failOpen bool // the gateway continues without the picker
}

// maxPorts bounds the target ports; the API allows eight.
const maxPorts = 64

// readPool reads an InferencePool.
func readPool(o object) (pool, error) {
	spec := section(o, "spec")
	var p pool
	labels, picker := section(spec, "selector", "matchLabels"), section(spec, "endpointPickerRef")
	ports, _ := spec["targetPorts"].([]any)
	p.failOpen = picker["failureMode"] == "FailOpen"
	var err error
	if p.selector, err = selector(labels); err != nil {
		return pool{}, err
	}
	if len(ports) == 0 || len(ports) > maxPorts {
		return pool{}, fmt.Errorf("spec: it has %d target ports", len(ports))
	}
	for _, entry := range ports {
		port, err := portNumber(entry)
		if err != nil {
			return pool{}, err
		}
		if slices.Contains(p.ports, port) {
			return pool{}, fmt.Errorf("spec: the target port %d is there twice", port)
		}
		p.ports = append(p.ports, port)
	}
	return p, nil
}

// selector returns labels as a label selector. A selector without labels would match
// every pod of the namespace.
func selector(labels object) (string, error) {
	if len(labels) == 0 {
		return "", errors.New("spec.selector: it names no label")
	}
	var terms []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value, ok := labels[key].(string)
		if !ok || !validLabel(key) || !validLabel(value) {
			return "", fmt.Errorf("spec.selector: %q is not a label with a value", key)
		}
		terms = append(terms, key+"="+value)
	}
	return strings.Join(terms, ","), nil
}

// validLabel accepts the characters of a label's key or value, which are none of a
// selector's operators.
func validLabel(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return len(s) <= 317 && strings.Trim(s, letters+"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./") == ""
}

func portNumber(entry any) (uint16, error) {
	e, _ := entry.(object)
	var n float64
	switch v := e["number"].(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	}
	if n < 1 || n > 65535 || n != float64(uint16(n)) {
		return 0, fmt.Errorf("spec: a target port is %v, not a number from 1 to 65535", e["number"])
	}
	return uint16(n), nil
}

// pod is the needed fields of a pod.
type pod struct {
	name   string
	addr   netip.Addr // not valid before it has one
	ready  bool       // ready, not being deleted, and of a role that takes prompts
	role   string     // of fleet.ReplicaOptions; "": its label names none
	active []uint16   // the only ports that take requests; nil: all of the pool's
}

// activePorts is the annotation in which a pod lists the pool's ports that take requests,
// as "8000,8001".
const activePorts = "inference.networking.k8s.io/active-ports"

// readPod reads a pod. A field that cannot be read makes it not ready.
func readPod(o object) pod {
	meta, status := section(o, "metadata"), section(o, "status")
	p := pod{name: text(meta, "name")}
	addr, err := netip.ParseAddr(text(status, "podIP"))
	if err == nil && addr.Zone() == "" && !addr.IsUnspecified() && !addr.IsMulticast() {
		p.addr = addr.Unmap()
	}
	p.ready = meta["deletionTimestamp"] == nil && p.addr.IsValid() && isReady(status)
	var takesPrompts bool
	p.role, takesPrompts = roleOf(text(section(meta, "labels"), RoleLabel))
	p.ready = p.ready && takesPrompts
	if list, ok := section(meta, "annotations")[activePorts].(string); ok {
		p.active = []uint16{}
		for field := range strings.SplitSeq(list, ",") {
			if n, err := strconv.ParseUint(strings.TrimSpace(field), 10, 16); err == nil && len(p.active) < maxPorts {
				p.active = append(p.active, uint16(n))
			}
		}
	}
	return p
}

// roleOf returns the replica's role for llm-d's name of it, and whether pods of that role
// take prompts: an encoder of images alone takes none. Other names are no role.
func roleOf(name string) (role string, takesPrompts bool) {
	switch name {
	case "prefill", "encode-prefill":
		return fleet.RolePrefill.String(), true
	case "decode", "encode-decode":
		return fleet.RoleDecode.String(), true
	case "prefill-decode", "encode-prefill-decode", "both":
		return fleet.RoleBoth.String(), true
	}
	return "", name != "encode"
}

func isReady(status object) bool {
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		if c, ok := c.(object); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

// section returns the mapping at a path, or nil.
func section(o object, path ...string) object {
	for _, key := range path {
		o, _ = o[key].(object)
	}
	return o
}

func text(o object, key string) string {
	s, _ := o[key].(string)
	return s
}
