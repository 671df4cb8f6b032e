package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
)

// TestExplainRefusesWhatItDoesNotKnow instead of finding nothing. The admin
// server refuses unknown parameters, for every page.
func TestExplainRefusesWhatItDoesNotKnow(t *testing.T) {
	h := explain(decision.NewRing(4), (*decision.Record).Explain, func(*decision.Record) tokenView { return tokenView{} })
	for query, want := range map[string]int{"": 200, "?n=3&reason=warm": 200, "?id=x": 404, "?reason=warm&id=x": 404, "?n=3&id=x": 200, "?reason=wram": 400, "?n=0": 400} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/explain"+query, nil))
		if w.Code != want {
			t.Errorf("%q: %d %s, want %d", query, w.Code, w.Body, want)
		}
	}
}

// TestSilentModelsAreNoted, each by its name.
func TestSilentModelsAreNoted(t *testing.T) {
	up, down := &fleet.Replica{Addr: "1:1", Ready: true}, &fleet.Replica{Addr: "2:1"}
	up.Models, down.Models = []fleet.Model{{ID: "a", Base: "a"}}, []fleet.Model{{ID: "b", Base: "b"}, {ID: "l", Base: "b"}}
	for _, c := range []struct {
		of   []*fleet.Replica
		want string
	}{
		{[]*fleet.Replica{up}, ""}, {[]*fleet.Replica{up, down}, `no replica of model "b" is ready`}, {[]*fleet.Replica{down}, "no replica is ready, of 1"},
		{[]*fleet.Replica{up, {Addr: "3:1"}}, "replica 3:1 has not answered yet, so its models are not known: requests for models that no other replica serves are sent there"},
	} {
		got := ""
		if notes := unservedModels(fleet.NewSnapshot(c.of...)); len(notes) == 1 {
			got = notes[0]
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
