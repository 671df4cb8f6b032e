package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// maxPatch far exceeds a patch of every setting.
const maxPatch = 64 << 10

// policyPages returns the admin pages of settings and pressure.
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
	answer(w, map[string]any{"models": r.decider.Pressure().All(index.Now())})
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
