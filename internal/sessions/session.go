package sessions

import (
	"slices"
	"time"

	"warmroute/internal/decision/history"
	"warmroute/prefixhash"
)

// Session is a row of prompts that continue each other.
type Session struct {
	history.Prompt                // the latest; the keys are its own
	size           int            // tokens of the latest prompt
	context        int            // with its answer
	cache          *history.Cache // of the holder that the latest was sent to; nil: none was
	open           int            // requests in flight
	answered       time.Time      // the latest answer
	turns          int            // requests that were sent
	name           name           // that a header gave it; zero: none
	number         uint64         // of the session; one that was rewritten keeps it
	replaced       bool           // another prompt rewrote its tail
	away           bool           // another router sent the latest
	heir           *Session       // that prompt's
	ticket         *Ticket        // of a request that is held, or whose place is kept

	newer, older *Session // in the table's list, by use
}

// working reports whether the session is live where a context takes so long to be computed.
func (s *Session) working(rate float64, now time.Time) bool {
	if s.open > 0 {
		return true
	}
	live := returns * float64(s.context) / rate
	return !s.replaced && now.Sub(s.answered).Seconds() < live
}

// holds returns the tokens that the session needs to keep in the cache.
func (s *Session) holds(now time.Time) int {
	if s.open > 0 {
		return s.context
	}
	has := s.cache.Match(s.Prompt, now)
	if has == s.Marks.End(len(s.Keys)) { // then the tokens behind the last key are still there, too
		return s.context
	}
	return has
}

// entry is what is known of a key.
type entry struct {
	owners int      // sessions whose latest prompt has the key
	live   int      // of these, sessions that were not replaced
	last   *Session // the owner that had it most recently
}

// tails is how many times as long as a tail a prompt is of which a tail alone is new: what tools
// have said is rewritten, or left out. Where more is new, another session may have the same head.
const tails = 8

// name is what a header calls the sessions of a client that use a model.
type name struct {
	model string
	id    uint64 // 0 = none
}

// nameOf returns the name of a request's session; zero: it has none.
func nameOf(r *Request) name {
	if r.Session == 0 {
		return name{}
	}
	return name{r.Model, r.Session}
}

// continued returns the session that a prompt continues; nil: none, it begins one. rewritten says
// that it has another tail, so that what was there may still be continued, too. A prompt whose content
// does not tell rewrites the latest session of its name; while that one has a request in flight, the
// prompt begins another session.
func (t *Table) continued(p history.Prompt, called name, away bool) (s *Session, rewritten bool) {
	if s, rewritten = t.told(p, called, away); s != nil {
		return s, rewritten
	}
	if s = t.named[called]; s == nil || s.open > 0 {
		return nil, false
	}
	return s, true
}

// told returns the session that a prompt continues by its content, as continued does. Names are not sent
// between routers: a prompt of another router (away) continues a session of any name, and a session
// without a name whose latest prompt was another router's is continued under any, which it then has.
func (t *Table) told(p history.Prompt, called name, away bool) (s *Session, rewritten bool) {
	n := t.depth(p.Keys)
	if n == 0 {
		return nil, false
	}
	m := t.known[p.Keys[n-1]]
	s = m.last
	switch {
	case s == nil || s.open > 0 || s.Marks != p.Marks: // a child of it
		return nil, false
	case !away && s.name != called && (s.name != name{} || !s.away): // it has another name
		return nil, false
	case n == len(s.Keys):
		return s, false
	case m.live > 1:
		return nil, false
	case tails*(s.size-p.Marks.End(n)) <= s.size:
		return s, false
	case t.known[p.Keys[0]].live > 1 || t.sessions > t.known[p.Keys[0]].live:
		return s, true
	}
	return nil, false
}

// depth returns the number of keys that some session has: a prompt's first ones.
func (t *Table) depth(keys []prefixhash.Key) int {
	n, _ := slices.BinarySearchFunc(keys, 0, func(k prefixhash.Key, _ int) int {
		if t.known[k] != nil {
			return -1
		}
		return 1
	})
	return n
}

// take makes p the latest prompt of s.
func (t *Table) take(s *Session, p history.Prompt, size int) {
	same := 0
	for same < min(len(p.Keys), len(s.Keys)) && p.Keys[same] == s.Keys[same] {
		same++
	}
	t.disown(s, s.Keys[same:])
	s.Keys = append(s.Keys[:same], p.Keys[same:]...)
	s.Marks, s.size = p.Marks, size
	for _, k := range s.Keys[same:] {
		m := t.known[k]
		if m == nil {
			m = new(entry)
			t.known[k] = m
		}
		m.owners++
		m.live++
	}
	for _, k := range s.Keys {
		t.known[k].last = s
	}
	if s.replaced {
		s.replaced, t.sessions = false, t.sessions+1
		t.number++ // the one behind the same head is another one after all
		s.heir.number, s.heir = t.number, nil
		for _, k := range s.Keys[:same] {
			t.known[k].live++
		}
	}
	t.keys += len(s.Keys) - same
}

// disown takes keys from s.
func (t *Table) disown(s *Session, keys []prefixhash.Key) {
	for _, k := range keys {
		m := t.known[k]
		if !s.replaced {
			m.live--
		}
		if m.last == s {
			m.last = nil
		}
		if m.owners--; m.owners == 0 {
			delete(t.known, k)
		}
	}
	t.keys -= len(keys)
}

// replace records that the prompt of heir rewrote the tail of s.
func (t *Table) replace(s, heir *Session) {
	if s.heir = heir; s.replaced {
		return
	}
	s.replaced, t.sessions = true, t.sessions-1
	for _, k := range s.Keys {
		t.known[k].live--
	}
}

// use puts s before all others in the list.
func (t *Table) use(s *Session) {
	if s.newer != nil {
		s.newer.older, s.older.newer = s.older, s.newer
	}
	s.newer, s.older = &t.list, t.list.older
	s.older.newer, t.list.older = s, s
}

// forget drops the sessions that were used least recently, until their keys are few enough.
func (t *Table) forget() {
	for s := t.list.newer; s != &t.list && t.keys > mostKeys; {
		next := s.newer
		if s.open == 0 && s.ticket == nil {
			t.disown(s, s.Keys)
			if !s.replaced {
				t.sessions--
			}
			if t.named[s.name] == s {
				delete(t.named, s.name)
			}
			s.older.newer, s.newer.older = s.newer, s.older
			s.newer, s.older, s.answered, s.Keys = nil, nil, time.Time{}, nil
		}
		s = next
	}
}
