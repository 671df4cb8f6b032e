package agents_test

import (
	"context"
	"sync"
	"testing"

	"warmroute/lab/cli/agents"
	"warmroute/lab/simulator"
)

// small is how many times smaller contexts and caches are than real ones, and computed as much slower.
const small = 4

// options are of 24 generated sessions on one replica, whose contexts are a multiple of its cache.
func options() agents.Options {
	all := agents.Generate(60, 1)
	for _, s := range all {
		for i := range s {
			s[i].Input, s[i].Same = s[i].Input/small, s[i].Same/small
		}
	}
	return agents.Options{All: all, Tokens: 640_000 / small, Rate: 16_000 / small, Clients: 24, Replicas: 1, Hours: 0.5, Seed: 1, Share: 0.1}
}

// cell runs a policy with options.
func cell(t *testing.T, policy string, change func(*agents.Options)) agents.Cell {
	t.Helper()
	o := options()
	if change != nil {
		change(&o)
	}
	c, err := agents.Run(t.Context(), policy, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c)
	return c
}

// holding is the cell with which tests compare theirs.
var holding = sync.OnceValue(func() agents.Cell { c, _ := agents.Run(context.Background(), "hold", options()); return c })

// TestHoldRaisesHits: past the cliff, holding cold prompts answers more requests, shuts nobody out,
// and knows the sessions. Progress-TTL answers more, too, but sends what has waited for five minutes, so
// that its hit rate falls.
func TestHoldRaisesHits(t *testing.T) {
	t.Parallel()
	today, hold, naive, progress := cell(t, "today", nil), holding(), cell(t, "naive", nil), cell(t, "progress", nil)
	if today.HitRate > 0.3 || hold.HitRate < 0.4 || 10*hold.Completed < 12*today.Completed || hold.ShutOut > 0 {
		t.Errorf("hold %+v, today %+v", hold, today)
	}
	if hold.Assigned < 0.99 {
		t.Errorf("%.4f of the turns are given to their session", hold.Assigned)
	}
	if naive.HitRate < 0.4 {
		t.Errorf("a naive hold: %+v", naive)
	}
	if progress.Completed < today.Completed || progress.HitRate > hold.HitRate/2 || progress.Max < 300 {
		t.Errorf("Progress-TTL: %+v", progress)
	}
}

// TestRoutersHoldTogether: several routers, of which any gets a request, keep the hit rate of one; those
// that send each other nothing lose it.
func TestRoutersHoldTogether(t *testing.T) {
	t.Parallel()
	several := func(delay float64) agents.Cell {
		return cell(t, "hold", func(o *agents.Options) { o.Routers, o.Delay = 4, delay })
	}
	one, four, silent := holding(), several(0.005), several(-1)
	if four.HitRate < one.HitRate-0.05 || 100*four.Completed < 90*one.Completed || four.ShutOut > 0 {
		t.Errorf("four routers %+v, one %+v", four, one)
	}
	if silent.HitRate > one.HitRate-0.2 {
		t.Errorf("without messages %+v", silent)
	}
}

// TestLightLoadIsNotHeld: sessions that fit are answered as without holding.
func TestLightLoadIsNotHeld(t *testing.T) {
	t.Parallel()
	few := func(o *agents.Options) { o.Clients = 3 }
	today, hold := cell(t, "today", few), cell(t, "hold", few)
	if today.Completed == 0 || 100*hold.Completed < 98*today.Completed {
		t.Errorf("hold %+v, today %+v", hold, today)
	}
}

// TestCPUMemory: a prompt that CPU memory keeps is loaded in no time and does not wait for room on the
// GPU, so holding costs nothing where CPU memory has room for all sessions.
func TestCPUMemory(t *testing.T) {
	t.Parallel()
	below := func(o *agents.Options) { o.Tier = simulator.Tier{Capacity: 3 * o.Tokens, Token: 5.2e-6 * small} }
	today, hold := cell(t, "today", below), cell(t, "hold", below)
	if today.HitRate < 0.5 || 100*hold.Completed < 97*today.Completed || hold.ShutOut > 0 {
		t.Errorf("hold %+v, today %+v", hold, today)
	}
}

// TestListOfJobs: a fixed list is run to its end, the same requests under each policy.
func TestListOfJobs(t *testing.T) {
	t.Parallel()
	jobs := func(o *agents.Options) { o.Jobs, o.Clients = 8, 8 }
	today, hold := cell(t, "today", jobs), cell(t, "hold", jobs)
	if today.Completed == 0 || today.Completed != hold.Completed || today.Makespan == 0 {
		t.Errorf("hold %+v, today %+v", hold, today)
	}
}

// TestImpatientClients: clients that give up keep their places, and all get answers.
func TestImpatientClients(t *testing.T) {
	t.Parallel()
	c := cell(t, "hold", func(o *agents.Options) { o.Patience, o.Hours = 60, 1 })
	if c.GivenUp == 0 || c.ShutOut > 0 {
		t.Errorf("%+v", c)
	}
}

func TestUnknownPolicy(t *testing.T) {
	if _, err := agents.Run(t.Context(), "best", agents.Options{Clients: 1, Replicas: 1, Tokens: 1000, Rate: 1}); err == nil {
		t.Error("there is a policy of that name")
	}
	if _, err := agents.Run(t.Context(), "progress", agents.Options{Clients: 1, Replicas: 2, Tokens: 1000, Rate: 1}); err == nil {
		t.Error("Progress-TTL has two replicas")
	}
}
