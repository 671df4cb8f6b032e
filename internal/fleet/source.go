package fleet

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Source names replicas. Watch calls set with the complete list whenever it
// changes, at least once if it can, and returns when ctx ends. An earlier error
// is logged and counted, the last list stays, and Watch is called again after a
// wait. A source that cannot reach its origin should keep its list: the fleet
// detects a replica that is really gone by its silence.
//
// When two sources name one address, the earlier source's settings count: the
// static list, then DNS names in order, then Options.Sources.
type Source interface {
	Watch(ctx context.Context, set func([]ReplicaOptions)) error
}

// watched is a source that is being watched. All but source belongs to the
// goroutine of Fleet.Run.
type watched struct {
	source  Source // nil: the list of the configuration, which the loop sets itself
	name    string
	stop    context.CancelFunc
	spoken  bool  // it has named its replicas
	failure error // of its last attempt; nil: it has not failed since it has named its replicas
	list    []ReplicaOptions
}

// settleAfter is how long the fleet waits for sources that neither name replicas nor fail.
const settleAfter = 10 * time.Second

// waitsFor reports whether the fleet is not settled before w has spoken.
func (r *roster) waitsFor(w *watched) bool { return !w.spoken && w.failure == nil && !r.late }

// note says what is missing of a source, "" if nothing is.
func (w *watched) note() string {
	switch {
	case w.failure != nil && w.spoken:
		return fmt.Sprintf("source %q of replicas failed, its last list stays: %v", w.name, w.failure)
	case w.failure != nil:
		return fmt.Sprintf("source %q of replicas has named none yet: %v", w.name, w.failure)
	case !w.spoken:
		return fmt.Sprintf("source %q of replicas has not answered yet", w.name)
	}
	if d, ok := w.source.(*dns); ok && d.inParts.Load() {
		return fmt.Sprintf("source %q leaves replicas out and names them again a moment later: those of the last minute's answers count, also if they have left", w.name)
	}
	return ""
}

// follow takes the replicas of the options in force and watches their sources, and no others.
func (r *roster) follow() {
	f, o := r.fleet, r.fleet.now()
	first := len(r.sources) == 0
	if first {
		r.sources = []*watched{{name: "static", spoken: true}}
	}
	old := r.sources[1:]
	r.sources = r.sources[:1:1]
	r.sources[0].list = o.Replicas
	keep := func(same func(Source) bool, source func() Source) {
		if i := slices.IndexFunc(old, func(w *watched) bool { return same(w.source) }); i >= 0 {
			r.sources = append(r.sources, old[i])
			old = slices.Delete(slices.Clone(old), i, i+1)
			return
		}
		ctx, stop := context.WithCancel(r.ctx)
		s := source()
		w := &watched{source: s, name: sourceName(s), stop: stop, spoken: !first} // nothing waits for a later source
		r.sources = append(r.sources, w)
		r.wg.Go(func() { f.watch(ctx, w) })
	}
	for _, options := range o.DNS {
		keep(func(s Source) bool {
			d, ok := s.(*dns)
			return ok && reflect.DeepEqual(d.options, options)
		}, func() Source {
			return &dns{options: options, named: map[netip.AddrPort]int{}, resolver: o.Resolver, families: families{
				answers: func(ctx context.Context, addr netip.AddrPort) bool { return f.client().answers(ctx, addr.String()) },
				chosen:  map[string]*family{},
			}}
		})
	}
	for _, s := range o.Sources {
		keep(func(t Source) bool { return s == t }, func() Source { return s })
	}
	for _, gone := range old {
		gone.stop()
		r.inherit(gone)
	}
	r.list()
}

// inherit copies the list of a source to its successor, which looks up the same
// name in another way, until the successor has an answer.
func (r *roster) inherit(gone *watched) {
	before, ok := gone.source.(*dns)
	if !ok {
		return
	}
	for _, w := range r.sources {
		if d, ok := w.source.(*dns); ok && w.list == nil && d.options.Name == before.options.Name {
			for _, o := range gone.list {
				settings := d.options.Replica
				settings.Address = o.Address
				w.list = append(w.list, settings)
			}
		}
	}
}
