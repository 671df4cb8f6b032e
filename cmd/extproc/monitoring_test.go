package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

const monitoring = "../../examples/monitoring"

// monitoringTool is one of Debian's Prometheus binaries, unpacked by make setup.
func monitoringTool(t *testing.T, name string) string {
	t.Helper()
	path := must.Get(filepath.Abs("../../.cache/prometheus/usr/bin/" + name))(t)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run scripts/fetch-prometheus.sh (make setup does)", err)
	}
	return path
}

func readYAML(t *testing.T, file string, v any) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(monitoring, file)))(t)
	if err := yaml.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// variables are Grafana's in the dashboard's queries, as if all were selected.
var variables = strings.NewReplacer("$instance", ".*", "$model", ".*", "$__range", "1h")

// expressions are all queries of the rules and of the dashboard, by where they stand.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Record, Expr string }
		}
	}
	readYAML(t, "alerts.yaml", &rules)
	for _, g := range rules.Groups {
		for i, r := range g.Rules {
			if r.Record != "" {
				out[fmt.Sprint("record ", r.Record, i)] = r.Expr
				continue
			}
			out["alert "+r.Alert] = r.Expr
		}
	}
	var scaled struct {
		Spec struct {
			Triggers []struct{ Metadata struct{ Query string } }
		}
	}
	readYAML(t, "autoscaling.yaml", &scaled)
	for i, trigger := range scaled.Spec.Triggers {
		out[fmt.Sprint("trigger ", i)] = trigger.Metadata.Query
	}
	text := must.Get(os.ReadFile(filepath.Join(monitoring, "dashboard.json")))(t)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	must.Do(t, json.Unmarshal(text, &dashboard))
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out["panel "+p.Title+" "+target.RefID] = variables.Replace(target.Expr)
		}
	}
	if len(out) < 25 {
		t.Fatalf("only %d expressions found", len(out))
	}
	return out
}

// TestMonitoringNamesMetrics that exist: docs/metrics.md is made from the metrics
// that the binaries register.
func TestMonitoringNamesMetrics(t *testing.T) {
	documented := must.Get(os.ReadFile("../../docs/metrics.md"))(t)
	vllm := must.Get(os.ReadFile("../../internal/fleet/testdata/metrics-0.32.0.txt"))(t)
	name := regexp.MustCompile(`(?:warmroute_|vllm:)[a-z_]+`)
	histogramPart := regexp.MustCompile(`_(bucket|sum|count)$`)
	files, err := filepath.Glob(filepath.Join(monitoring, "*"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%v %v", files, err)
	}
	found := 0
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(t)
		for _, metric := range name.FindAllString(string(text), -1) {
			found++
			if strings.HasPrefix(metric, "vllm:") {
				if !strings.Contains(string(vllm), "\n"+metric+"{") {
					t.Errorf("%s names %s, which vLLM 0.32 does not have", file, metric)
				}
				continue
			}
			if !strings.Contains(string(documented), "`"+metric+"`") && !strings.Contains(string(documented), "`"+histogramPart.ReplaceAllString(metric, "")+"`") {
				t.Errorf("%s names %s, which there is not", file, metric)
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d names found", found)
	}
}

// TestAlertRules: promtool takes the rules and their unit tests, and every alert has
// a case in which it fires and a case in which it is silent.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool := monitoringTool(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"check", "config", "prometheus.yml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	var cases struct {
		Tests []struct {
			Cases []struct {
				Alert string           `yaml:"alertname"`
				Fires []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "alerts_test.yaml", &cases)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range cases.Tests {
		for _, c := range test.Cases {
			fires[c.Alert] = fires[c.Alert] || len(c.Fires) > 0
			silent[c.Alert] = silent[c.Alert] || len(c.Fires) == 0
		}
	}
	alerts := 0
	for where := range expressions(t) {
		if alert, is := strings.CutPrefix(where, "alert "); is {
			alerts++
			if !fires[alert] || !silent[alert] {
				t.Errorf("%s: tested firing %v, silent %v", alert, fires[alert], silent[alert])
			}
		}
	}
	if alerts == 0 {
		t.Error("no alerts found")
	}
}

// TestPanelsOfTwoRouters: what two routers have both read from three replicas counts once, and
// what each has done itself counts for both.
func TestPanelsOfTwoRouters(t *testing.T) {
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	each := func(value float64, name, more string) (out []sample) {
		for _, replica := range []string{"a", "b", "c"} {
			out = append(out, sample{fmt.Sprintf(`%s{%sreplica=%q}`, name, more, replica), value})
		}
		return out
	}
	one := func(value float64) []sample { return []sample{{"{}", value}} }
	// Two routers see three replicas of two ranks; a counter rises by 1 a second.
	series, panels := map[string]string{}, map[string][]sample{
		"Replicas ready A":            one(3),
		"Suspect replicas A":          one(3),
		"Prefix-cache hit rate A":     one(1),
		"Hit rate by replica A":       each(1, "", ""),
		"Predicted and actual hits A": one(12),
		"Predicted and actual hits B": one(6),
		"Prediction shortfall A":      each(1, "", ""),
		"Waiting requests A":          each(2, "", ""),
		"In flight A":                 each(4, "", ""),
		"Pressure A":                  {{`{model="m"}`, 1}},
		"Blocks stored and removed A": one(6),
		"Blocks stored and removed B": one(6),
		"Gaps, losses, restarts A":    each(1800, "", ""),
		"Gaps, losses, restarts B":    each(1800, "", ""),
		"Gaps, losses, restarts C":    each(1800, "", ""),
		"KV cache in use A":           append(each(1, "", `rank="0",`), each(1, "", `rank="1",`)...),
		"Time to load a token A":      append(each(1, "", `place="cpu",rank="0",`), each(1, "", `place="cpu",rank="1",`)...),
	}
	metric := regexp.MustCompile(`warmroute_[a-z_]+\{(?:[a-z]+="[a-z_]+",)*`) // with the labels that the panel selects
	var tests []map[string]any
	for panel, want := range panels {
		expr, ok := expressions(t)["panel "+panel]
		if !ok {
			t.Fatalf("there is no panel %q", panel)
		}
		tests = append(tests, map[string]any{"expr": expr, "eval_time": "30m", "exp_samples": want})
		for _, name := range metric.FindAllString(expr, -1) {
			series[name] = "1x120"
			if strings.Contains(name, "_total{") {
				series[name] = "0+15x120"
			}
		}
	}
	var input []map[string]string
	for selector, values := range series {
		name, own, _ := strings.Cut(selector, "{")
		for _, labels := range []string{`replica="a",rank="0"`, `replica="a",rank="1"`, `replica="b",rank="0"`, `replica="b",rank="1"`, `replica="c",rank="0"`, `replica="c",rank="1"`} {
			if name == "warmroute_pressure_recent" {
				labels = `model="m"`
			} else if name == "warmroute_replica_ready" || strings.HasPrefix(name, "warmroute_prediction_") {
				labels, _, _ = strings.Cut(labels, ",")
			} else if name == "warmroute_load_token_seconds" {
				labels += `,place="cpu"`
			}
			for _, instance := range []string{"1", "2"} {
				one := map[string]string{"series": fmt.Sprintf("%s{%sinstance=%q,%s}", name, own, instance, labels), "values": values}
				if !slices.ContainsFunc(input, func(o map[string]string) bool { return o["series"] == one["series"] }) {
					input = append(input, one)
				}
			}
		}
	}
	file := must.Get(yaml.Marshal(map[string]any{"tests": []any{map[string]any{"interval": "15s", "input_series": input, "promql_expr_test": tests}}}))(t)
	name := filepath.Join(t.TempDir(), "panels.yaml")
	must.Do(t, os.WriteFile(name, file, 0o600))
	if out, err := exec.Command(monitoringTool(t, "promtool"), "test", "rules", name).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPrometheusScrapes: a real Prometheus scrapes a running router, takes every
// expression of the rules and of the dashboard, and no alert fires.
func TestPrometheusScrapes(t *testing.T) {
	t.Parallel()
	prometheus := monitoringTool(t, "prometheus")
	sim := testenv.StartSimulator(t)
	r, _ := startRouter(t, fmt.Sprintf("fleet: {replicas: [{address: %q}]}\n", sim.Addr))
	complete(t, sim.Addr, []uint32{1, 2, 3, 4})

	rules := must.Get(filepath.Abs(filepath.Join(monitoring, "alerts.yaml")))(t)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 200ms, evaluation_interval: 200ms}\nrule_files: [%q]\nscrape_configs:\n- job_name: warmroute\n  static_configs: [{targets: [%q]}]\n",
		rules, r.reloads.inForce().Admin.Listen)
	must.Do(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	api := testenv.Addresses(t, 1)[0]
	cmd := exec.Command(prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+api, "--log.level=error")
	cmd.Stderr = os.Stderr
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	query := func(expr string) (status string, series int) {
		code, body := get(t, "http://"+api+"/api/v1/query?query="+url.QueryEscape(expr))
		var answer struct {
			Status string
			Error  string
			Data   struct{ Result []any }
		}
		if code != http.StatusOK || json.Unmarshal([]byte(body), &answer) != nil {
			return fmt.Sprint(code, " ", body), 0
		}
		return answer.Status, len(answer.Data.Result)
	}
	until(t, "Prometheus has scraped the router", func() bool {
		_, series := query(`up{job="warmroute"} == 1 and on (instance) warmroute_fleet_replicas{state="ready"} == 1`)
		return series == 1
	})
	for where, expr := range expressions(t) {
		if status, _ := query(expr); status != "success" {
			t.Errorf("%s: %s: %s", where, expr, status)
		}
	}
	// The series of a router without requests, rates once it was scraped twice.
	for _, panel := range []string{"Replicas ready A", "KV cache in use A", "Waiting requests A", "Prefix-cache hit rate A", "Blocks stored and removed A"} {
		expr := expressions(t)["panel "+panel]
		until(t, panel+" shows something", func() bool { _, series := query(expr); return series > 0 })
	}
	var alerts string
	defer func() {
		if t.Failed() {
			t.Log(alerts)
		}
	}()
	until(t, "no alert of a healthy router", func() bool { // one of the time when it was not ready stays until the next evaluation
		_, alerts = get(t, "http://"+api+"/api/v1/query?query=ALERTS")
		return strings.Contains(alerts, `"result":[]`)
	})
}
