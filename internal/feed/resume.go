package feed

import (
	"context"
	"time"

	"warmroute/index"
)

// Cursors returns where the subscriptions are, for another index that takes a
// snapshot of this one.
func (f *Feed) Cursors() (all []index.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.replicas {
		for _, sub := range s.subs {
			if c, ok := sub.Cursor(); ok && !f.index.Grouped(c.Holder) { // its groups are not in a snapshot
				all = append(all, c)
			}
		}
	}
	return all
}

// Resume passes the places up to which the index was restored. Replicas that join
// later continue from them. When SyncTimeout has passed, the index removes what was
// restored of replicas that have not joined. Call it before the first Join.
func (f *Feed) Resume(cursors []index.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resume = map[index.Holder]index.Cursor{}
	for _, c := range cursors {
		f.resume[c.Holder] = c
	}
	f.wg.Go(func() { f.forgetLeft(f.ctx) })
}

// takeOver returns the place a new subscription can continue from, nil when there
// is none or its events are read in another way than those of the snapshot.
func (f *Feed) takeOver(as index.Cursor) *index.Cursor {
	f.mu.Lock()
	c, ok := f.resume[as.Holder]
	delete(f.resume, as.Holder)
	f.mu.Unlock()
	if !ok || c.Tenant != as.Tenant || c.Model != as.Model || c.Scheme != as.Scheme || c.Full != as.Full {
		return nil
	}
	if c.Incarnation, ok = f.index.Resume(c.Holder); !ok {
		return nil
	}
	return &c
}

// forgetLeft has the index forget what no subscription took over in time.
func (f *Feed) forgetLeft(ctx context.Context) {
	timer := time.NewTimer(f.o.SyncTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.resume {
		f.index.Begin(h) // ends what was restored; f.mu keeps a subscription from taking it over just now
	}
	f.resume = nil
}
