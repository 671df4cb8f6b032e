// Package compose holds the test of examples/compose, read by compose's own library.
package compose

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const dir = "../../examples/compose"

func load(t *testing.T, file string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(dir, file)}, cli.WithName("warmroute"), cli.WithWorkingDirectory(dir), cli.WithEnv([]string{"WARMROUTE_ADMIN_TOKEN=of-the-test"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTheAdminPortNeedsAToken: without one compose does not start the router, whose
// admin port the other containers reach.
func TestTheAdminPortNeedsAToken(t *testing.T) {
	o, err := cli.NewProjectOptions([]string{filepath.Join(dir, "compose.yaml")}, cli.WithName("warmroute"), cli.WithWorkingDirectory(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.LoadProject(context.Background()); err == nil || !strings.Contains(err.Error(), "WARMROUTE_ADMIN_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
}

// TestComposeFiles: both files are valid, everything they name is there, and each replica
// publishes its events as warmroute needs them, under the name that it looks up.
func TestComposeFiles(t *testing.T) {
	for file, gpus := range map[string]bool{"compose.yaml": true, "compose.cpu.yaml": false} {
		t.Run(file, func(t *testing.T) {
			p := load(t, file)
			devices := map[string]string{}
			var replicas []string
			for name, s := range p.Services {
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
