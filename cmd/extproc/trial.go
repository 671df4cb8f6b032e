package main

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"warmroute/cmd/extproc/internal/comparison"
	"warmroute/filter"
	"warmroute/internal/problems"
)

// The values of filter.mode.
const (
	modeRoute  = "route"
	modeShadow = "shadow"
)

// trial returns which requests pass without their hint. A cluster that has no balancer
// needs every hint.
func (c FilterConfig) trial() filter.Trial {
	if c.AlwaysPick {
		return filter.Trial{}
	}
	return filter.Trial{Shadow: c.Mode == modeShadow, Share: c.Share, ShareBy: c.ShareBy, OptOut: c.OptOutHeader}
}

// validateTrial returns every problem of the settings of a trial.
func (c FilterConfig) validateTrial() error {
	var p problems.List
	p.Refuse(c.Mode != modeRoute && c.Mode != modeShadow, "mode", "%q is none of %s, %s", c.Mode, modeRoute, modeShadow)
	p.Refuse(!(c.Share > 0 && c.Share <= 100), "share", "%v is not above 0 and at most 100; mode %s hints no request", c.Share, modeShadow)
	p.Refuse(c.AlwaysPick && (c.Mode == modeShadow || c.Share < 100), "always_pick",
		"it is for clusters without a balancer, which need every hint: mode must be route, and share 100")
	p.Add("share_by: ", validateTrustedHeader(c.ShareBy))
	p.Add("opt_out_header: ", validateTrustedHeader(c.OptOutHeader))
	p.Refuse(c.OptOutHeader != "" && slices.Contains([]string{c.TenantHeader, c.PriorityHeader, c.ShareBy}, c.OptOutHeader), "opt_out_header",
		"%q has another meaning in this configuration", c.OptOutHeader)
	return p.Err()
}

// trialPage answers GET /debug/trial: the settings in force, and the comparison since they
// are.
func (r *router) trialPage() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c := r.reloads.inForce().Filter
		since, groups := r.outcomes.compared.Figures()
		w.Header().Set("Cache-Control", "no-store")
		answer(w, struct {
			Mode    string               `json:"mode"`
			Share   float64              `json:"share"`
			ShareBy string               `json:"share_by,omitempty"`
			Since   time.Time            `json:"since"`
			Groups  []comparison.Figures `json:"groups"`
		}{c.Mode, c.Share, c.ShareBy, since, groups})
	})
}

// trialNotes says which requests get no hint, so that nobody forgets a trial.
func (r *router) trialNotes() []string {
	c := r.reloads.inForce().Filter
	switch {
	case c.Mode == modeShadow:
		return []string{"filter.mode is shadow: no request gets a hint"}
	case c.Share < 100:
		return []string{fmt.Sprintf("filter.share is %v: the other %v percent of the requests get no hint", c.Share, 100-c.Share)}
	}
	return nil
}
