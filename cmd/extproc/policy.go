package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"warmroute/internal/cli/replay"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/simulator/brain"
)

// maxPatch is far more than every setting takes.
const maxPatch = 64 << 10

// policyPages are the admin pages of settings and pressure.
func (r *router) policyPages() map[string]http.Handler {
	reset := func(w http.ResponseWriter, req *http.Request) {
		model := req.PathValue("model")
		r.decider.Pressure().Reset(model)
		if r.sharing.outbox != nil {
			r.sharing.outbox.PressureReset(model)
		}
		r.log.Info("pressure reset", "model", model)
		w.WriteHeader(http.StatusNoContent)
	}
	return map[string]http.Handler{
		"GET /policy":                 http.HandlerFunc(r.showPolicy),
		"GET /debug/peers":            http.HandlerFunc(r.showPeers),
		"PATCH /policy":               http.HandlerFunc(r.patchPolicy),
		"PATCH /policy/{model...}":    http.HandlerFunc(r.patchPolicy),
		"GET /pressure":               http.HandlerFunc(r.showPressure),
		"DELETE /pressure/{model...}": http.HandlerFunc(reset),
	}
}

func (r *router) showPolicy(w http.ResponseWriter, _ *http.Request) {
	c, version := r.book.Config()
	answer(w, map[string]any{"version": version, "default": c.Overrides, "models": c.Models})
}

func (r *router) showPressure(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"models": r.decider.Pressure().All(time.Now())})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

// patchPolicy changes the settings of a model, or of the default policy.
func (r *router) patchPolicy(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPatch))
	if err != nil {
		http.Error(w, "the patch is too large", http.StatusRequestEntityTooLarge)
		return
	}
	if model := req.PathValue("model"); model != "" && !r.knows(model) {
		http.Error(w, fmt.Sprintf("model: %q is served by no replica and has no settings", model), http.StatusNotFound)
		return
	}
	change, err := r.book.Patch(req.PathValue("model"), body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.audit(change, req.RemoteAddr)
	answer(w, change)
}

// knows reports whether a replica serves the model or settings exist for it.
func (r *router) knows(model string) bool {
	if c, _ := r.book.Config(); c.Models != nil {
		if _, ok := c.Models[model]; ok {
			return true
		}
	}
	return slices.ContainsFunc(r.fleet.Snapshot().Replicas, func(rep *fleet.Replica) bool { return rep.Model(model) != nil })
}

// audit logs a change of the policies and sends it to other routers.
func (r *router) audit(c policy.Change, by string) {
	if len(c.Fields) > 0 {
		r.policyChanged()
		r.log.Info("policy changed", "version", c.Version, "model", c.Model, "changes", strings.Join(c.Fields, "; "), "by", by)
	}
}

func policyCommand(ctx context.Context, args []string, std stdio) error {
	var path string
	if err := flags(std, "policy", args, configFlagVar(&path)); err != nil {
		return err
	}
	o, err := policyOf(path)
	if err != nil {
		return err
	}
	return brain.Run(ctx, std.in, std.out, brain.Options{Policy: o})
}

// policyOf is the policy section of a configuration, the default without one.
func policyOf(path string) (policy.Config, error) {
	if path == "" {
		return policy.Config{}, nil
	}
	c, err := loadConfig(path)
	return c.Policy, err
}

func replayCommand(ctx context.Context, args []string, std stdio) error {
	var config, plot, policies string
	o := replay.Options{Progress: std.err}
	fs := flag.NewFlagSet("extproc replay", flag.ContinueOnError)
	fs.SetOutput(std.err)
	configFlagVar(&config)(fs)
	fs.IntVar(&o.Replicas, "replicas", 4, "number of replicas")
	fs.StringVar(&policies, "policies", "p2c,least,localai,llm-d,dynamo", "policies to compare with")
	fs.Float64Var(&o.Speedup, "speedup", 1, "factor on the rate of the log")
	fs.Float64Var(&o.Slower, "slower", 1, "factor on the engine's times against an 8B model on an H100")
	fs.IntVar(&o.Capacity, "capacity", 0, "tokens of KV cache per replica; 0 = those of an H100 with an 8B model")
	fs.BoolVar(&o.Seconds, "seconds", false, "timestamps are seconds, not milliseconds")
	fs.StringVar(&plot, "plot", "", "SVG `file` to write")
	fs.Usage = func() {
		fmt.Fprintln(std.err, "usage: extproc replay [flags] FILE|-\nEvery line of FILE is a JSON object: timestamp, body (and path) or hash_ids and input_length, output_length.")
		fs.PrintDefaults()
	}
	if err := fs.Parse(args); err != nil || fs.NArg() != 1 {
		if err == nil {
			fs.Usage()
		}
		return errUsage
	}
	o.Rivals = strings.Split(policies, ",")
	var err error
	if o.Policy, err = policyOf(config); err != nil {
		return err
	}
	in := std.in
	if name := fs.Arg(0); name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer f.Close()
		in = f
	}
	if plot == "" {
		return replay.Run(ctx, in, std.out, o)
	}
	f, err := os.Create(plot)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	o.Plot = f
	return errors.Join(replay.Run(ctx, in, std.out, o), f.Close())
}
