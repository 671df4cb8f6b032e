package feed

import (
	"context"
	"time"

	"warmroute/index"
)

// Cursors returns the places that the subscriptions have reached, for another index
// that takes a snapshot of this one.
func (f *Feed) Cursors() (all []index.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.replicas {
		for _, sub := range s.subs {
			if c, ok := sub.Cursor(); ok && !f.index.Grouped(c.Holder) { // a snapshot lacks its groups
				all = append(all, c)
			}
		}
	}
	return all
}

// Resume passes the places up to which the index was restored. Replicas that join
// later continue from them. After SyncTimeout the index removes the blocks of
// restored replicas that have not joined. Call it before the first Join.
func (f *Feed) Resume(cursors []index.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resume = map[index.Holder]index.Cursor{}
	for _, c := range cursors {
		f.resume[c.Holder] = c
	}
	f.wg.Go(func() { f.forgetLeft(f.ctx) })
}

// takeOver returns the place from which a new subscription can continue, nil when
// there is none or the snapshot's events were read in another way.
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

// forgetLeft removes the restored holders from the index that no subscription took
// over in time.
func (f *Feed) forgetLeft(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(f.o.SyncTimeout):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.resume {
		f.index.Begin(h) // drops the restored blocks; f.mu keeps a subscription from taking them over just now
	}
	f.resume = nil
}
