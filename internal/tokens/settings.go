package tokens

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mostSettings bounds the settings of requests that are known of one model.
	mostSettings = 256
	// settingRest is how long a setting keeps its place after a request that has it, and how
	// long one that no replica answered for is not asked about again.
	settingRest = time.Minute
)

// The states of a setting.
const (
	settingAsked = iota // a comparison is under way, or had no answer
	settingEqual
	settingDiffers
)

// settings are the replicas' answers for settings of requests (render's Server.Prompts):
// flags such as --reasoning-effort-map change single values, which no start-up
// conversation may have. The zero value knows of none. Readers use atomics alone.
type settings struct {
	known    atomic.Pointer[map[uint64]*setting] // replaced, never changed
	mu       sync.Mutex                          // held while known is replaced; guards evidence
	evidence Evidence                            // of the settings that differ
}

type setting struct {
	state atomic.Int32
	used  atomic.Int64 // by a request, in seconds
	asked atomic.Int64 // in seconds
}

func (s *settings) of(hash uint64) *setting {
	if known := s.known.Load(); known != nil {
		return (*known)[hash]
	}
	return nil
}

// equal reports whether a replica has confirmed the setting of a request; 0 needs no
// confirmation.
func (s *settings) equal(hash uint64, now time.Time) bool {
	if hash == 0 {
		return true
	}
	one := s.of(hash)
	if one == nil {
		return false
	}
	if now := now.Unix(); one.used.Load() != now {
		one.used.Store(now)
	}
	return one.state.Load() == settingEqual
}

// asks reports whether a request with a setting that is not confirmed is to be compared
// with a replica: once, and again after settingRest if none answered.
func (s *settings) asks(hash uint64, now time.Time) bool {
	one := s.of(hash)
	if one == nil {
		return s.set(hash, settingAsked, now)
	}
	last := one.asked.Load()
	return one.state.Load() == settingAsked && now.Unix()-last >= int64(settingRest/time.Second) && one.asked.CompareAndSwap(last, now.Unix())
}

// set records the state of a setting. It reports false if the setting has no place: all are
// taken by settings that requests have now.
func (s *settings) set(hash uint64, state int32, now time.Time) bool {
	if hash == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.of(hash)
	if one != nil {
		if one.state.Load() != settingDiffers { // another replica may agree
			one.state.Store(state)
		}
		return true
	}
	next := map[uint64]*setting{}
	if known := s.known.Load(); known != nil {
		next = maps.Clone(*known)
	}
	if len(next) >= mostSettings {
		var oldest uint64
		for h, o := range next {
			if oldest == 0 || o.used.Load() < next[oldest].used.Load() {
				oldest = h
			}
		}
		if now.Unix()-next[oldest].used.Load() < int64(settingRest/time.Second) {
			return false
		}
		delete(next, oldest)
	}
	one = &setting{}
	one.state.Store(state)
	one.used.Store(now.Unix())
	one.asked.Store(now.Unix())
	next[hash] = one
	s.known.Store(&next)
	return true
}

// differs records that a setting gives other ids, and reports whether it is the first.
func (s *settings) differs(hash uint64, first Evidence) bool {
	s.set(hash, settingDiffers, first.At)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evidence.differs(first)
	return s.evidence.Differs == 1
}

// reset forgets everything: the server has changed.
func (s *settings) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Store(nil)
	s.evidence = Evidence{}
}
