package chart

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"warmroute/render/testkit/must"
)

// rendered is the part of the chart's objects that the checks read.
type rendered struct {
	t          *testing.T
	values     map[string]any // that were given
	objects    []runtime.Object
	deployment *appsv1.Deployment
	pod        corev1.PodSpec
	container  corev1.Container
	config     map[string]any
}

// list returns the objects of a type.
func list[T runtime.Object](r *rendered) (out []T) {
	for _, o := range r.objects {
		if is, ok := o.(T); ok {
			out = append(out, is)
		}
	}
	return out
}

// at is a field of the router's configuration, nil where there is none.
func (r *rendered) at(path ...string) (v any) {
	v = r.config
	for _, p := range path {
		section, _ := v.(map[string]any)
		v = section[p]
	}
	return v
}

// listens is the address of a section of the router's configuration, "" where it
// is off.
func (r *rendered) listens(section string) string {
	s, _ := r.at(section, "listen").(string)
	return s
}

// checks are the rows of docs/security.md, each an error for a rendered chart.
var checks = map[string]func(r *rendered) error{
	"non-root": func(r *rendered) error {
		return unless(*r.pod.SecurityContext.RunAsNonRoot, "runAsNonRoot is not set")
	},
	"read-only-root": func(r *rendered) error {
		return unless(*r.container.SecurityContext.ReadOnlyRootFilesystem, "the root file system can be written")
	},
	"no-capabilities": func(r *rendered) error {
		s := r.container.SecurityContext
		return unless(!*s.AllowPrivilegeEscalation && len(s.Capabilities.Add) == 0 && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}), "%+v", s)
	},
	"seccomp": func(r *rendered) error {
		p := r.pod.SecurityContext.SeccompProfile
		return unless(p != nil && p.Type == corev1.SeccompProfileTypeRuntimeDefault, "%+v", p)
	},
	"no-host": func(r *rendered) error {
		p := r.pod
		hostPath := slices.ContainsFunc(p.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
		return unless(!p.HostNetwork && !p.HostPID && !p.HostIPC && !hostPath, "the pod uses the host")
	},
	"api-token": func(r *rendered) error {
		pool, _ := r.values["pool"].(map[string]any)
		follows := pool["name"] != nil
		for _, account := range list[*corev1.ServiceAccount](r) {
			if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
				return fmt.Errorf("every pod of the account %s has the API's token", account.Name)
			}
		}
		return unless(*r.pod.AutomountServiceAccountToken == follows, "the API's token is mounted: %v, want %v", !follows, follows)
	},
	"limits": func(r *rendered) error {
		return unless(!r.container.Resources.Limits.Memory().IsZero() && !r.container.Resources.Requests.Cpu().IsZero(), "%+v", r.container.Resources)
	},
	"volumes": func(r *rendered) error {
		for _, v := range r.pod.Volumes {
			if v.EmptyDir != nil && (v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.IsZero()) {
				return fmt.Errorf("volume %s has no limit", v.Name)
			}
		}
		for _, m := range r.container.VolumeMounts {
			if !m.ReadOnly && m.Name != "models" {
				return fmt.Errorf("volume %s can be written", m.Name)
			}
		}
		return nil
	},
	"probes": func(r *rendered) error {
		c := r.container
		for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p == nil || p.HTTPGet.Port.String() != "health" {
				return fmt.Errorf("a probe does not use the health port: %+v", p)
			}
		}
		return nil
	},
	"admin-closed": func(r *rendered) error {
		if at := r.listens("admin"); !strings.HasPrefix(at, "127.0.0.1:") {
			return fmt.Errorf("the admin port is at %s", at)
		}
		for _, s := range list[*corev1.Service](r) {
			for _, p := range s.Spec.Ports {
				if p.Port == 9090 || p.TargetPort.String() == "admin" {
					return fmt.Errorf("Service %s has the admin port", s.Name)
				}
			}
		}
		return unless(!slices.ContainsFunc(r.container.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == 9090 }), "the pod declares the admin port")
	},
	"admin-token": func(r *rendered) error { return r.token("admin") },
	"peers-token": func(r *rendered) error {
		if r.listens("peers") == "" {
			return nil
		}
		return r.token("peers")
	},
	"index-closed": func(r *rendered) error {
		if r.listens("index_service") == "" {
			return nil
		}
		return unless(r.at("index_service", "token_file") != nil || r.at("index_service", "tls", "client_ca_file") != nil, "the index asks nothing of its clients")
	},
	"nothing-insecure": func(r *rendered) error {
		return unless(r.at("insecure") == nil, "sections are opened")
	},
	"network-policy": func(r *rendered) error {
		policies := list[*networkingv1.NetworkPolicy](r)
		given, _ := r.values["networkPolicy"].(map[string]any)
		if given["enabled"] == false {
			return unless(len(policies) == 0, "a policy is there though it was turned off")
		}
		if len(policies) != 1 {
			return fmt.Errorf("%d policies", len(policies))
		}
		return admits(r, policies[0].Spec)
	},
	"disruption": func(r *rendered) error {
		if *r.deployment.Spec.Replicas == 1 {
			return nil
		}
		budgets := list[*policyv1.PodDisruptionBudget](r)
		return unless(len(budgets) == 1 && budgets[0].Spec.MaxUnavailable.IntValue() == 1, "%d budgets", len(budgets))
	},
}

// admits checks that a policy is of the router's pods, and that each rule names
// who may connect to which one port.
func admits(r *rendered, p networkingv1.NetworkPolicySpec) error {
	if !maps.Equal(p.PodSelector.MatchLabels, r.deployment.Spec.Selector.MatchLabels) || !slices.Equal(p.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		return fmt.Errorf("the policy is not of the router's ingress: %+v", p)
	}
	var ports []string
	for _, rule := range p.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) != 1 {
			return fmt.Errorf("a rule lets everybody in: %+v", rule)
		}
		port := rule.Ports[0].Port.String()
		for _, from := range rule.From {
			selector := from.PodSelector
			if port != "index" && (selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0) {
				return fmt.Errorf("every pod reaches %s: %+v", port, from)
			}
		}
		ports = append(ports, port)
	}
	want := []string{"grpc", "health"}
	if r.listens("index_service") != "" {
		want = append(want, "index")
	}
	if r.listens("peers") != "" {
		want = append(want, "peers")
	}
	return unless(slices.Equal(ports, want), "ports %v, want %v", ports, want)
}

func unless(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}

// token checks that a section's token comes from a Secret, named or made, that is
// mounted where the configuration reads it.
func (r *rendered) token(section string) error {
	file := fmt.Sprintf("/etc/warmroute-%s/token", section)
	if r.at(section, "token_file") != file {
		return fmt.Errorf("%s has no token", section)
	}
	mounted := slices.ContainsFunc(r.container.VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == section+"-token" && m.MountPath == filepath.Dir(file)
	})
	i := slices.IndexFunc(r.pod.Volumes, func(v corev1.Volume) bool { return v.Name == section+"-token" && v.Secret != nil })
	if !mounted || i < 0 {
		return fmt.Errorf("the token of %s is not mounted", section)
	}
	from := r.pod.Volumes[i].Secret
	if len(from.Items) != 1 || from.Items[0].Path != "token" {
		return fmt.Errorf("the token of %s is not in its file: %+v", section, from.Items)
	}
	if given, _ := r.values[section].(map[string]any); given["tokenSecret"] != nil {
		name, key, keyed := strings.Cut(fmt.Sprint(given["tokenSecret"]), "/")
		if !keyed {
			key = "token"
		}
		return unless(name == from.SecretName && key == from.Items[0].Key, "Secret %s/%s is mounted in place of that of values", from.SecretName, from.Items[0].Key)
	}
	made := find[*corev1.Secret](r.t, r.objects, from.SecretName)
	return unless(len(made.Data[from.Items[0].Key]) >= 32, "Secret %s has a token of %d bytes", from.SecretName, len(made.Data[from.Items[0].Key]))
}

// TestHardening walks the checklist of docs/security.md over the objects that every use
// of the chart renders: each row has a check, and each check a row.
func TestHardening(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/security.md"))(t)
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, m[1])
	}
	slices.Sort(rows)
	if has := slices.Sorted(maps.Keys(checks)); !slices.Equal(rows, has) {
		t.Errorf("the document lists %v, the checks are %v", rows, has)
	}
	for name, c := range cases {
		r := &rendered{t: t, objects: render(t, c.values)}
		r.deployment = list[*appsv1.Deployment](r)[0]
		r.pod = r.deployment.Spec.Template.Spec
		r.container = r.pod.Containers[0]
		config := configOf(t, r.objects)
		for text, into := range map[string]*map[string]any{c.values: &r.values, config: &r.config} {
			must.Do(t, yaml.Unmarshal([]byte(text), into))
		}
		for _, row := range slices.Sorted(maps.Keys(checks)) {
			if err := checks[row](r); err != nil {
				t.Errorf("%s, %s: %v", name, row, err)
			}
		}
	}
}

// certificates is a folder with the files that the cluster mounts: each Secret's
// own folder, with a token and a certificate that signs itself.
func certificates(t *testing.T) string {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	certificate := must.Get(x509.CreateCertificate(rand.Reader, of, of, key.Public(), key))(t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	dir := t.TempDir()
	for _, use := range []string{"admin", "peers", "peers-tls", "index", "index-tls", "extproc-tls", "extproc-clients", "replicas", "replicas-tls", "replicas-ca"} {
		for name, text := range map[string][]byte{
			"token": []byte("secret-of-the-test\n"), "tls.crt": public, "ca.crt": public,
			"tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		} {
			must.Do(t, os.MkdirAll(filepath.Join(dir, use), 0o700))
			must.Do(t, os.WriteFile(filepath.Join(dir, use, name), text, 0o600))
		}
	}
	return dir
}
