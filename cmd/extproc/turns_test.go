package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/filter"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// TestLongBodiesTakeTurns: a long body waits while other long work has all turns.
func TestLongBodiesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
		var others []*work.Budget
		for range forLongWork() {
			b := work.New(t.Context(), work.Limits{}, 0)
			b.InTurns(r.ids.turns)
			for range 100 {
				b.Pause() // until it has a turn
			}
			others = append(others, b)
		}
		done := false
		go func() {
			body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(`word\n`, 1_000_000) + `"}]}`
			r.envoys.filter.Route(t.Context(), &filter.Query{Route: openai.Chat, Body: []byte(body)})
			done = true
		}()
		if synctest.Wait(); done {
			t.Error("it takes no turn")
		}
		for _, b := range others {
			b.End()
		}
		if synctest.Wait(); !done {
			t.Error("it waits for ever")
		}
	})
}
