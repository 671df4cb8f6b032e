package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// mostNamed bounds the replicas that a note names.
const mostNamed = 10

const (
	// restartTakes is shorter than a start of a model's server.
	restartTakes = 20 * time.Second
	// manyRestarts are as many as one server may make in their time.
	manyRestarts = 3
)

// note returns a note that names the replicas of which something is so, with the reasons; "": there
// are none.
func (r *roster) note(what string, of func(*entry) (why string, so bool)) string {
	var named []string
	for _, addr := range r.addresses() {
		if why, so := of(r.entries[addr]); so && len(named) < mostNamed {
			named = append(named, fmt.Sprintf("%s (%s)", addr, why))
		}
	}
	if len(named) == 0 {
		return ""
	}
	return what + ": " + strings.Join(named, "; ")
}

// notes returns what is wrong with replicas and sources, for people.
func (r *roster) notes() []string {
	notes := []string{
		r.note("replicas that have never been ready, so that their address or port may be wrong", func(e *entry) (why string, so bool) {
			return e.current.Why, e.asked && e.current.Joined == 0
		}),
		r.note("replicas that were ready and are not any more", func(e *entry) (why string, so bool) {
			c := e.current
			return c.Why, c.Joined != 0 && !c.Ready && !c.Held && e.until.IsZero()
		}),
		r.note("replicas whose address leads to several servers, as a load balancer's does, so that each one's cache is soon forgotten; list the servers' own addresses", func(e *entry) (why string, so bool) {
			return "another process each time", e.others.Add(0, time.Now(), restartTakes, 2*manyRestarts) > manyRestarts
		}),
		r.note("replicas whose /metrics are not read, so that the requests of routers alone are known as their load, and not whether they sleep", func(e *entry) (why string, so bool) {
			return e.current.unread, e.current.unread != "" && e.current.Why == ""
		}),
		r.note("replicas that refuse to list their models again, so that changes of models and adapters are not seen; look at fleet.token_file", func(e *entry) (why string, so bool) {
			return e.current.closed, e.current.closed != "" && e.current.Why == ""
		}),
		r.note("replicas that two sources name with different settings, of which the first one's count", func(e *entry) (why string, so bool) {
			why, so = r.twice[e.worker.addr]
			return why, so
		}),
		r.note("replicas that list more models than are read, so that requests for the others get no hint", func(e *entry) (why string, so bool) {
			return fmt.Sprintf("%d models", len(e.current.Models)), e.current.Partial()
		}),
	}
	for _, w := range r.sources {
		notes = append(notes, w.note())
	}
	return slices.DeleteFunc(notes, func(note string) bool { return note == "" })
}
