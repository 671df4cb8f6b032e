//go:build vllm

package vllm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/internal/cli/predict"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// schedulers are the releases whose own scheduler is driven. 0.33.0 is there as
// Python alone and runs on 0.32.0's libraries.
var schedulers = []struct{ name, python, path string }{
	{"0.32.0", "0.32.0", ""},
	{"0.33.0", "0.32.0", "0.33.0-python"},
	{"0.27.0", "0.27.0", ""},
}

const (
	leastLookups  = 20_000
	leastConfigs  = 20
	driveRequests = 120
)

var (
	schedulerSeed  = flag.Int("scheduler.seed", 396550, "first seed of the captures; 0 draws one")
	schedulerSeeds = flag.Int("scheduler.seeds", 1, "captures of each configuration, with consecutive seeds")
)

// TestScheduler drives vLLM's own scheduler and cache manager through random
// traffic over many kinds of caches (test/vllm/scheduler.py). The router's
// prediction from the events must equal every lookup.
func TestScheduler(t *testing.T) {
	t.Parallel()
	first := *schedulerSeed
	if first == 0 {
		first = 1000 + rand.IntN(1_000_000)
	}
	t.Logf("seeds %d to %d", first, first+*schedulerSeeds-1)
	lookups, configs := make([]int, len(schedulers)), make([]int, len(schedulers))
	t.Run("versions", func(t *testing.T) {
		for i, s := range schedulers {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				d := drive{t: t, python: s.python, path: s.path}
				names := strings.Fields(d.output("--list"))
				var captures []string
				for seed := range *schedulerSeeds {
					for k, name := range names { // odd seeds have two batches in flight
						captures = append(captures, fmt.Sprintf("%s:%d", name, first+seed+k%2))
					}
				}
				d.run(captures)
				if len(names) < leastConfigs || d.lookups == 0 || d.captures != len(captures) {
					t.Errorf("%d configurations, %d captures of %d, %d lookups", len(names), d.captures, len(captures), d.lookups)
				}
				t.Logf("%d configurations: %d lookups, %d found something cached; full attention alone: %d right; %d differences; %d less, and said so",
					len(names), d.lookups, d.hits, d.fullRight, d.wrong, d.less)
				d.memory.check(t, s.name)
				lookups[i], configs[i] = d.lookups, len(names)
			})
		}
	})
	total := 0
	for _, n := range lookups {
		total += n
	}
	if total < leastLookups {
		t.Errorf("%d lookups over %v configurations, want at least %d", total, configs, leastLookups)
	}
	t.Logf("%d lookups", total)
}

// drive is one run of the driver and its results.
type drive struct {
	t                                         *testing.T
	python, path                              string
	captures, lookups, hits, fullRight, wrong int
	less                                      int // where events are not sufficient: called inexact, and less than vLLM found
	memory                                    offloaded
	reports                                   bool
	config                                    string
	p                                         *predict.Predictor
}

func (d *drive) command(args ...string) *exec.Cmd {
	return ofVLLM(d.t, d.python, d.path, "scheduler.py", args...)
}

// ofVLLM returns a script of this folder with the Python of an installed vLLM; path = another one's
// sources, "" = its own.
func ofVLLM(t *testing.T, python, path, script string, args ...string) *exec.Cmd {
	root := checkout.Root()
	installed := filepath.Join(root, ".cache", "vllm")
	cmd := exec.CommandContext(t.Context(), filepath.Join(installed, python, "bin", "python"),
		append([]string{filepath.Join(root, "test", "vllm", script)}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=")
	if path != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+filepath.Join(installed, path))
	}
	return cmd
}

func (d *drive) output(args ...string) string {
	d.t.Helper()
	cmd := d.command(args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%v: %v\n%s", cmd, err, said.Bytes())
	}
	return string(out)
}

// run compares the driver's lines while it writes them.
func (d *drive) run(captures []string) {
	d.t.Helper()
	cmd := d.command(append([]string{"--requests", fmt.Sprint(driveRequests)}, captures...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out := must.Get(cmd.StdoutPipe())(d.t)
	must.Do(d.t, cmd.Start())
	d.read(out)
	if err := cmd.Wait(); err != nil {
		d.t.Fatalf("%v: %v\n%s", cmd, err, said.Bytes())
	}
}

func (d *drive) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	defer func() {
		if d.p != nil {
			d.p.Close()
		}
	}()
	for lines.Scan() {
		d.line(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		d.t.Error(err)
	}
}

// line takes a header, a frame or a query.
func (d *drive) line(text []byte) {
	var l struct {
		Version string `json:"version"`
		Config  string `json:"config"`
		Seed    int    `json:"seed"`
		Cached  int    `json:"cached"`
		Full    int    `json:"full_attention_only"`
		Host    *int   `json:"host"` // nil: there is no CPU memory
		Reset   *reset `json:"reset"`
	}
	must.Do(d.t, json.Unmarshal(text, &l))
	if l.Version != "" {
		d.begin(text, fmt.Sprintf("%s %s:%d", l.Version, l.Config, l.Seed))
		return
	}
	if l.Reset != nil { // a router does not see it
		d.memory.silent = d.memory.silent || l.Reset.Silent
		return
	}
	a, err := d.p.Take(text)
	if err != nil {
		d.t.Fatalf("%s: %v", d.config, err)
	}
	if a == nil {
		return
	}
	d.lookups++
	if l.Cached > 0 {
		d.hits++
	}
	if l.Full == l.Cached {
		d.fullRight++
	}
	if l.Host != nil {
		d.offloaded(a, l.Cached, *l.Host)
		return
	}
	switch {
	case a.Cached == l.Cached && a.FullOnly == l.Full:
	case d.reports && !a.Exact && a.Cached <= l.Cached: // a report looks like a prompt of whole blocks that is computed again
		d.less++
	default:
		if d.wrong++; d.wrong <= 20 {
			d.t.Errorf("%s, lookup %d: predicted %d (full attention %d), vLLM found %d (%d)", d.config, d.lookups, a.Cached, a.FullOnly, l.Cached, l.Full)
		}
	}
}

// begin starts a capture. The predictor gets the settings that an operator can know.
func (d *drive) begin(header []byte, config string) {
	var all map[string]json.RawMessage
	must.Do(d.t, json.Unmarshal(header, &all))
	d.reports = strings.Contains(config, "-report:")
	told := map[string]json.RawMessage{}
	for _, field := range []string{"version", "hash_algo", "none_hash", "assume", "cache_config_info"} {
		told[field] = all[field]
	}
	text, err := json.Marshal(told)
	if err != nil {
		d.t.Fatal(err)
	}
	if d.p != nil {
		d.p.Close()
	}
	if d.p, err = predict.New(nil); err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.p.Take(text); err != nil {
		d.t.Fatalf("%s: %v", config, err)
	}
	d.captures, d.config = d.captures+1, config
	d.memory.silent = false
}
