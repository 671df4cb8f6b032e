package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"warmroute/internal/decision"
)

// lastDecisions is how many decisions /debug/explain shows for a query without a
// number.
const lastDecisions = 20

// explain answers GET /debug/explain?id=REQUEST_ID&reason=…&n=…: the newest
// recorded decisions that match, newest first, as {"decisions": [...]}, or 404 for an
// id of none, without n, which asks for a list; with the
// places where tokenizers were found and the features whose ids are not computed
// in process any more, if any: those of the one decision's model, or of all.
func explain(ring *decision.Ring, why func(*decision.Record), view func(of *decision.Record) tokenView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n := lastDecisions
		if s := q.Get("n"); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil || n < 1 {
				http.Error(w, fmt.Sprintf("n: %q is not a positive number", s), http.StatusBadRequest)
				return
			}
		}
		id, reason := q.Get("id"), decision.Reason(q.Get("reason"))
		if reason != "" && !slices.Contains(decision.Reasons(), reason) {
			http.Error(w, fmt.Sprintf("reason: %q is no reason code", reason), http.StatusBadRequest)
			return
		}
		found := ring.Last(n, func(rec *decision.Record) bool {
			return (id == "" || rec.ID == id) && (reason == "" || rec.Reason == reason)
		})
		if id != "" && len(found) == 0 && !q.Has("n") {
			http.Error(w, fmt.Sprintf("no kept decision has the id %.128q; filter.decisions is the number of decisions that are kept", id), http.StatusNotFound)
			return
		}
		for i := range found {
			why(&found[i])
		}
		var one *decision.Record
		if len(found) == 1 && (id != "" || n == 1) {
			one = &found[0]
		}
		answer(w, struct {
			Decisions []decision.Record `json:"decisions"`
			tokenView
		}{found, view(one)})
	})
}

// ready says why the router cannot decide requests yet: the fleet has not settled,
// or a replica's events have not been caught up with.
func (r *router) ready() error {
	if !r.fleet.Snapshot().Settled {
		return errors.New("not every replica has been contacted yet")
	}
	if addr, behind := r.feed.Behind(); behind {
		return fmt.Errorf("replica %s: past KV events have not been received yet", addr)
	}
	return nil
}
