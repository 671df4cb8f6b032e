package feed

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

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

// Sources is the state of the KV events of the ready replicas that Snapshot returns. It
// implements prometheus.Collector.
type Sources struct {
	Feed     *Feed
	Snapshot func() *fleet.Snapshot
}

// each calls yield for each ready replica.
func (s Sources) each(yield func(*fleet.Replica, State)) {
	supplies := map[string]Replica{}
	for _, supply := range s.Feed.Status() {
		supplies[supply.Addr] = supply
	}
	for _, r := range s.Snapshot().Replicas {
		if r.Ready {
			yield(r, StateOf(r, supplies[r.Addr]))
		}
	}
}

// Notes names the replicas without KV events, and what SGLang servers lack, at most notedMost
// of each, if that is not configured.
func (s Sources) Notes() []string {
	var without, others, missing []string
	s.each(func(r *fleet.Replica, state State) {
		switch {
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
	notes := missing[:min(len(missing), notedMost)]
	if len(without) > 0 {
		notes = append(notes, "replicas without KV events, whose caches are known from what was sent there alone: "+few(without)+
			": start vLLM with --kv-events-config, or configure events, sidecar, or no_events if that is intended")
	}
	if len(others) > 0 {
		notes = append(notes, "replicas of other engines than vLLM and SGLang, whose caches are known from what was sent there alone: "+few(others)+
			": no_events says that it is meant")
	}
	return notes
}

// few lists the first ones of some addresses.
func few(addrs []string) string {
	list := strings.Join(addrs[:min(len(addrs), notedMost)], ", ")
	if more := len(addrs) - notedMost; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}

var sourcesDesc = prometheus.NewDesc("warmroute_kv_sources",
	"Ready replicas by the state of their KV events: sidecar, off (no_events), refused, other (another engine, without events), none, paused, connecting, following.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (s Sources) Describe(ch chan<- *prometheus.Desc) { ch <- sourcesDesc }

// Collect implements prometheus.Collector.
func (s Sources) Collect(ch chan<- prometheus.Metric) {
	count := map[State]int{}
	s.each(func(_ *fleet.Replica, state State) { count[state]++ })
	for _, state := range States() {
		ch <- prometheus.MustNewConstMetric(sourcesDesc, prometheus.GaugeValue, float64(count[state]), string(state))
	}
}
