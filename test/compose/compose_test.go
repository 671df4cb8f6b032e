// Package compose holds the test of examples/compose, read by compose's own library.
package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"warmroute/render/testkit/must"
)

const dir = "../../examples/compose"

func load(t *testing.T, file string) *types.Project {
	t.Helper()
	o := must.Get(cli.NewProjectOptions([]string{filepath.Join(dir, file)}, cli.WithName("warmroute"), cli.WithWorkingDirectory(dir), cli.WithEnv([]string{"WARMROUTE_ADMIN_TOKEN=of-the-test"})))(t)
	p := must.Get(o.LoadProject(context.Background()))(t)
	return p
}

// TestTheAdminPortNeedsAToken: without one compose does not start the router, whose
// admin port the other containers reach. With one the router has it.
func TestTheAdminPortNeedsAToken(t *testing.T) {
	o := must.Get(cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithName("warmroute"), cli.WithWorkingDirectory(dir)))(t)
	if _, err := o.LoadProject(context.Background()); err == nil || !strings.Contains(err.Error(), "WARMROUTE_ADMIN_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	for _, file := range []string{"compose.yaml", "compose.cpu.yaml"} {
		p := load(t, file)
		s := p.Services["warmroute"].Secrets
		if len(s) != 1 || s[0].Source != "admin-token" || p.Secrets["admin-token"].Environment != "WARMROUTE_ADMIN_TOKEN" {
			t.Errorf("%s: the router's secrets are %+v of %+v", file, s, p.Secrets)
		}
	}
}

// TestComposeFiles: both files are valid, everything they name is there, and each replica
// publishes its events as warmroute needs them, under the name that it looks up.
func TestComposeFiles(t *testing.T) {
	for file, gpus := range map[string]bool{"compose.yaml": true, "compose.cpu.yaml": false} {
		t.Run(file, func(t *testing.T) {
			p := load(t, file)
			devices, cores := map[string]string{}, map[int]string{}
			var replicas []string
			for name, s := range p.Services {
				if s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) == 0 {
					t.Errorf("%s has no health check for up --wait", name)
				}
				for _, port := range s.Ports {
					if port.HostIP != "127.0.0.1" {
						t.Errorf("%s publishes port %s on %q, beyond the loopback", name, port.Published, port.HostIP)
					}
				}
				for _, v := range s.Volumes {
					if v.Type != types.VolumeTypeBind {
						continue
					}
					if _, err := os.Stat(v.Source); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if s.Build != nil {
					if _, err := os.Stat(filepath.Join(s.Build.Context, "Dockerfile")); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, is := s.Networks["default"]; is && s.Networks["default"] != nil && slices.Contains(s.Networks["default"].Aliases, "vllm") {
					replicas = append(replicas, name)
					publishes(t, name, s)
					exclusive(t, name, s, gpus, devices)
					apart(t, name, s, gpus, cores)
				}
			}
			if len(replicas) != 2 {
				t.Errorf("replicas %v, want two with the alias vllm", replicas)
			}
			for _, name := range []string{"envoy", "warmroute"} {
				if _, err := p.GetService(name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// publishes checks the flags without which warmroute learns nothing of a replica.
func publishes(t *testing.T, name string, s types.ServiceConfig) {
	t.Helper()
	flags := map[string]string{}
	for _, arg := range s.Command {
		flag, value, _ := strings.Cut(arg, "=")
		flags[flag] = value
	}
	for _, flag := range []string{"--enable-prefix-caching", "--enable-prompt-tokens-details", "--enable-scale-out", "--kv-events-config"} {
		if _, given := flags[flag]; !given {
			t.Errorf("%s: %s is missing", name, flag)
		}
	}
	var events struct {
		Enabled   bool   `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
	}
	if err := json.Unmarshal([]byte(flags["--kv-events-config"]), &events); err != nil || !events.Enabled || events.Publisher != "zmq" {
		t.Errorf("%s: KV events %+v, %v", name, events, err)
	}
	for _, endpoint := range []string{events.Endpoint, events.Replay} {
		port, found := strings.CutPrefix(endpoint, "tcp://*:")
		if !found || !slices.Contains(s.Expose, port) {
			t.Errorf("%s: %q is not exposed: %v", name, endpoint, s.Expose)
		}
	}
	if !slices.Contains(s.Expose, "8000") {
		t.Errorf("%s: exposes %v, warmroute asks port 8000", name, s.Expose)
	}
}

// exclusive checks that no two replicas get the same GPU, and none does without.
func exclusive(t *testing.T, name string, s types.ServiceConfig, gpus bool, devices map[string]string) {
	t.Helper()
	var ids []string
	if s.Deploy != nil && s.Deploy.Resources.Reservations != nil {
		for _, d := range s.Deploy.Resources.Reservations.Devices {
			ids = append(ids, d.IDs...)
			if d.Count != 0 {
				t.Errorf("%s: count %d gives every replica the first GPUs", name, d.Count)
			}
		}
	}
	if (len(ids) > 0) != gpus {
		t.Errorf("%s: GPUs %v", name, ids)
	}
	for _, id := range ids {
		if other := devices[id]; other != "" {
			t.Errorf("%s and %s both have GPU %s", name, other, id)
		}
		devices[id] = name
	}
}

// apart checks that no two replicas without GPUs share a core.
func apart(t *testing.T, name string, s types.ServiceConfig, gpus bool, cores map[int]string) {
	t.Helper()
	if gpus {
		return
	}
	from, to := 0, -1
	if n, err := fmt.Sscanf(s.CPUSet, "%d-%d", &from, &to); err != nil || n != 2 || to < from {
		t.Errorf("%s: cores %q, want a range", name, s.CPUSet)
	}
	for core := from; core <= to; core++ {
		if other := cores[core]; other != "" {
			t.Errorf("%s and %s both have core %d", name, other, core)
		}
		cores[core] = name
	}
}

// check returns the command of a service's health check.
func check(s types.ServiceConfig) []string {
	if s.HealthCheck == nil {
		return nil
	}
	return s.HealthCheck.Test
}

// TestHealthChecks: the router's is its own program with its own file; a replica's and Envoy's,
// which are of what their images have, pass if and only if the port there says ready.
func TestHealthChecks(t *testing.T) {
	for _, file := range []string{"compose.yaml", "compose.cpu.yaml"} {
		p := load(t, file)
		router := p.Services["warmroute"]
		if want := append([]string{"CMD", "/usr/local/bin/extproc", "ready"}, router.Command[1:]...); !slices.Equal(check(router), want) {
			t.Errorf("%s: the router's check is %q, want %q", file, check(router), want)
		}
		passesIfReady(t, check(p.Services["vllm-0"]), "8000", "/health")
		passesIfReady(t, check(p.Services["envoy"]), "9901", "/ready")
	}
	bootstrap, err := os.ReadFile(filepath.Join(dir, "envoy.yaml"))
	if err != nil || !strings.Contains(string(bootstrap), `admin:
  address: {socket_address: {address: "127.0.0.1", port_value: 9901}}`) {
		t.Fatalf("Envoy has no admin port on its loopback: %v", err)
	}
}

// passesIfReady runs a health check against a server in the place of the one at its port.
func passesIfReady(t *testing.T, command []string, at, path string) {
	t.Helper()
	if len(command) != 4 || command[0] != "CMD" {
		t.Fatalf("the check is %q", command)
	}
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			t.Errorf("%q asks for %s", command, r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	passes := func() bool {
		_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
		return exec.Command(command[1], command[2], strings.ReplaceAll(command[3], at, port)).Run() == nil //nolint:gosec // the example's own
	}
	if !passes() {
		t.Errorf("%q fails where the server is ready", command)
	}
	if status = http.StatusServiceUnavailable; passes() {
		t.Errorf("%q passes where the server is not ready", command)
	}
	if server.Close(); passes() {
		t.Errorf("%q passes without a server", command)
	}
}

// TestTokenizersAreKept: the router's tokenizers go to a volume that belongs to the user of its image,
// who has no home.
func TestTokenizersAreKept(t *testing.T) {
	service := must.Get(load(t, "compose.yaml").GetService("warmroute"))(t)
	home := *service.Environment["HF_HOME"]
	if !slices.ContainsFunc(service.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Type == "volume" && v.Target == home && !v.ReadOnly }) {
		t.Errorf("HF_HOME is %s, which is no volume", home)
	}
	image := must.Get(os.ReadFile("../../Dockerfile"))(t)
	const user = "65532:65532"
	for _, line := range []string{"RUN mkdir -p /cache/" + filepath.Base(home) + "\n", "COPY --from=build --chown=" + user + " /cache/ " + filepath.Dir(home) + "/\n", "USER " + user + "\n"} {
		if !strings.Contains(string(image), line) {
			t.Errorf("the Dockerfile lacks %q", line)
		}
	}
}

// TestReadme: each file is started until its health checks pass, by a command that returns,
// so that the next ones have the token of the first.
func TestReadme(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(dir, "README.md")))(t)
	_, after, found := strings.Cut(string(text), "export WARMROUTE_ADMIN_TOKEN=")
	for _, up := range []string{"\ndocker compose up -d --build --wait ", "docker compose -f compose.cpu.yaml up -d --build --wait\n"} {
		if !found || !strings.Contains(after, up) {
			t.Errorf("after the token there is no %q", up)
		}
	}
}
