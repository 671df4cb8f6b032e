package feed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"warmroute/internal/bound"
	"warmroute/internal/fleet"
)

// State is the state of a replica's KV events; see States.
type State string

// The states. A replica has the first that applies to one of its ranks.
const (
	Sidecar    State = "sidecar"    // a sidecar reports them
	Off        State = "off"        // the configuration says that it publishes none (no_events)
	Refused    State = "refused"    // it has sources, and none is used
	Other      State = "other"      // it runs another engine, which publishes none
	None       State = "none"       // it publishes none
	Paused     State = "paused"     // a rank is left alone because of its messages
	Connecting State = "connecting" // a rank is not connected, or its sources are not known yet
	Following  State = "following"  // every rank is connected
)

// States returns every State.
func States() []State {
	return []State{Sidecar, Off, Refused, Other, None, Paused, Connecting, Following}
}

// StateOf returns the state of a replica, from the fleet's latest snapshot, whose supply is s.
func StateOf(r *fleet.Replica, s Replica) State {
	switch {
	case r.Sidecar:
		return Sidecar
	case r.NoEvents:
		return Off
	case s.Refused != nil || len(r.Events) == 0 && r.EventsRefused != "":
		return Refused
	case len(r.Events) == 0 && !r.EventsUnknown && r.OtherEngine():
		return Other
	case len(r.Events) == 0 && !r.EventsUnknown:
		return None
	case slices.ContainsFunc(s.Ranks, func(k Rank) bool { return k.Paused > 0 }):
		return Paused
	case len(s.Ranks) == 0 || slices.ContainsFunc(s.Ranks, func(k Rank) bool { return !k.Connected }):
		return Connecting
	}
	return Following
}

// each calls yield for each ready replica, with its supply, one of all.
func (f *Feed) each(all []Replica, yield func(*fleet.Replica, Replica, State)) {
	supplies := map[string]Replica{}
	for _, supply := range all {
		supplies[supply.Addr] = supply
	}
	for _, r := range f.o.Snapshot().Replicas {
		if r.Ready {
			yield(r, supplies[r.Addr], StateOf(r, supplies[r.Addr]))
		}
	}
}

// sources names the replicas without a prefix cache, those without KV events if that is not configured,
// what SGLang servers lack, and the ranks whose events do not come, at most bound.MostNotes of each.
func (f *Feed) sources(all []Replica) []string {
	var without, others, missing, deaf, off, unreported []string
	f.each(all, func(r *fleet.Replica, supply Replica, state State) {
		for i := range supply.Ranks {
			if why := supply.Ranks[i].deaf(r, supply.Synced); why != "" {
				deaf = append(deaf, fmt.Sprintf("replica %s, rank %d: %s", r.Addr, supply.Ranks[i].Rank, why))
			}
		}
		for _, rank := range r.Ranks {
			if len(r.Events) > 0 && r.EventsRefused == "" && !slices.ContainsFunc(r.Events, func(e fleet.EventSource) bool { return e.Rank == rank }) {
				deaf = append(deaf, fmt.Sprintf("replica %s, rank %d: it has no KV events, and other ranks have: list its endpoint in events, too", r.Addr, rank))
			}
		}
		switch {
		case r.CacheOff:
			off = append(off, r.Addr)
		case state == Sidecar:
			unreported = append(unreported, f.unreported(r)...)
		case r.SGLang != nil:
			for _, note := range r.SGLang.Missing(state == None) {
				missing = append(missing, fmt.Sprintf("replica %s: %s", r.Addr, note))
			}
		case state == Other:
			others = append(others, r.Addr)
		case state == None:
			without = append(without, r.Addr)
		}
	})
	notes := append(missing[:min(len(missing), bound.MostNotes)], bound.Notes(deaf, bound.MostNotes, "ranks have no KV events that come")...)
	notes = append(notes, bound.Notes(unreported, bound.MostNotes, "ranks are reported by no sidecar")...)
	for _, of := range []struct {
		addrs    []string
		what, do string
	}{
		{off, "replicas that keep nothing of a prompt for later ones, since their prefix caching is off", "start vLLM with --enable-prefix-caching, or SGLang without --disable-radix-cache"},
		{without, "replicas without KV events, whose caches are known from what was sent there alone", "start vLLM with --kv-events-config, or configure events, sidecar, or no_events if that is intended"},
		{others, "replicas of other engines than vLLM and SGLang, whose caches are known from what was sent there alone", "no_events says that it is meant"},
	} {
		if len(of.addrs) > 0 {
			notes = append(notes, of.what+": "+few(of.addrs)+": "+of.do)
		}
	}
	return notes
}

// silentTokens are the tokens of prompts after whose prefill a publisher must have announced a
// block: a thousand blocks of 16, or a few of the largest.
const silentTokens = 16 << 10

// oneStarts is more often than one publisher begins anew behind a proxy that keeps its connections.
const oneStarts = 20

// deaf says why no events of a rank of r come, "" if they do or need not have come yet; synced says
// that the router waits for the past ones no longer.
func (k *Rank) deaf(r *fleet.Replica, synced bool) string {
	load, _ := r.LoadOf(k.Rank)
	switch computed := load.Computed() - k.computed; {
	case k.Paused > 0 || !synced:
	case !k.Connected:
		return "its KV events cannot be reached, so that its cache is known from what was sent there alone: " + cmp.Or(k.LastError, "no connection yet") +
			"; vLLM listens at tcp://*:5557, and not where its endpoint names an address"
	case k.Restarts > k.Connects+oneStarts: // a process that ends takes its connections along
		return "its KV events begin anew again and again on one connection, so that most are lost: several publishers write to its endpoint, as behind a proxy; give each rank an endpoint of its own"
	case k.NoReplay != "":
		return "its replay endpoint gives no batches, so that its past KV events are not known, and one that is lost costs all that is: " + k.NoReplay
	case k.Batches == 0 && computed >= silentTokens:
		return "it is connected and computes prompts, and no KV event has come: look at the topic, --kv-events-config, and --enable-prefix-caching"
	case k.Batches == k.Replayed && k.Duplicates == 0 && computed >= silentTokens:
		return "its KV events come by replay alone, so that its cache is known late: look at the topic"
	}
	return ""
}

// unreported names the ranks of a replica that compute prompts and of which no sidecar has reported a block.
func (f *Feed) unreported(r *fleet.Replica) (out []string) {
	for _, rank := range r.Ranks {
		if load, _ := r.LoadOf(rank); load.Computed() >= silentTokens && len(r.Models) > 0 && f.groups(r, rank) == nil {
			out = append(out, fmt.Sprintf("replica %s, rank %d: it computes prompts, and no sidecar reports its blocks of model %q, so that its cache is known from what was sent there alone: look at kvsub's -replica, -rank, -model, -tenant and -hash-scheme (tokens), and its log",
				r.Addr, rank, r.Models[0].Base))
		}
	}
	return out
}

// few lists the first ones of some addresses.
func few(addrs []string) string {
	list := strings.Join(addrs[:min(len(addrs), bound.MostNotes)], ", ")
	if more := len(addrs) - bound.MostNotes; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
