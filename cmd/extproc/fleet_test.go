package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/fleet"
	"warmroute/internal/intake"
	"warmroute/internal/prefill"
	"warmroute/internal/testenv"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestALaterReplicaLeavesTheRouterReady: the past events of a replica are waited for at the start
// alone; then a replica whose events do not come is in a note.
func TestALaterReplicaLeavesTheRouterReady(t *testing.T) {
	for name, late := range map[string]bool{"of the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			r := must.Get(newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()))(t)
			k := r.replicas
			testenv.Run(t, k.fleet.Run)
			testenv.Run(t, k.feed.Run)
			settled := func() bool { return k.fleet.Snapshot().Settled && (!late || k.ready() == nil) }
			until(t, "the fleet has settled", settled)
			k.feed.Join(&fleet.Replica{Addr: "127.0.0.1:1", Ranks: []int{0}, Reported: fleet.Reported{
				BlockSize: 16, Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: []fleet.EventSource{{Endpoint: "tcp://127.0.0.1:1"}},
			}})
			if err := k.ready(); (err == nil) != late {
				t.Errorf("ready: %v", err)
			}
			told := slices.ContainsFunc(k.notes(k.fleet.Snapshot()), func(n string) bool { return strings.Contains(n, "past KV events have not been received yet") })
			if told != late {
				t.Errorf("in a note: %v", told)
			}
		})
	}
}

// TestReplicasThatStandAloneAreNamed: /readyz has a line for one that says of its model what the
// others do not, and for one whose /render is not used.
func TestReplicasThatStandAloneAreNamed(t *testing.T) {
	r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
	var all []*fleet.Replica
	for n := range 3 {
		all = append(all, &fleet.Replica{Addr: fmt.Sprintf("10.0.0.%d:80", n+1), Ready: true, Joined: uint64(n), Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}}})
	}
	named := func(replica, what string) bool {
		s := fleet.NewSnapshot(all...)
		return slices.ContainsFunc(append(r.replicas.notes(s), r.ids.notes(s, time.Now())...), func(n string) bool {
			return strings.Contains(n, replica) && strings.Contains(n, what)
		})
	}
	noted := fleet.NewSnapshot(all...)
	if noted.Notes = []string{"of the fleet"}; !slices.Contains(r.replicas.notes(noted), noted.Notes[0]) {
		t.Error("the fleet's own notes are not told")
	}
	const other, render = `lists "m" as a name of "x"`, "no request is sent to the /render of "
	if named("", other) || named("", render) {
		t.Error("some are named, and all agree")
	}
	all[0].Models[0].Base, all[1].Render = "x", true
	if !named(all[0].Addr, other) || !named(all[1].Addr, render+all[1].Addr+", because most of its replicas have none") {
		t.Errorf("notes: %q, %q", r.replicas.notes(fleet.NewSnapshot(all...)), r.ids.notes(fleet.NewSnapshot(all...), time.Now()))
	}
}

// TestOneBudgetForAnswers: prefills' answers and those with token ids have one budget.
func TestOneBudgetForAnswers(t *testing.T) {
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"token_ids":[1]}`) }))
	defer replica.Close()
	r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
	r.replicas.answers.Most = 1
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"a"}]}`)
	if _, err := r.envoys.legs.Send(t.Context(), &prefill.Leg{Addr: replica.Listener.Addr().String(), Route: openai.Chat, Body: body, Timeout: time.Minute}); !errors.Is(err, prefill.ErrBusy) {
		t.Errorf("a prefill: %v", err)
	}
	req := must.Get(openai.Parse(openai.Chat, body))(t)
	if _, err := r.ids.remote.Ask(t.Context(), req, "m", []tokens.Endpoint{{URL: replica.URL, Render: true}}); !errors.Is(err, intake.ErrCrowded) {
		t.Errorf("token ids: %v", err)
	}
}
