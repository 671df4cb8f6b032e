package decision

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/internal/fleet"
	"warmroute/internal/load"
)

// SplitReason says why prefill and decode of a request were on two replicas, or why not.
// The set is closed: metrics have one series for each, and docs/prefill-decode.md explains
// every one.
type SplitReason string

// Reasons of requests whose decode replica computed the prefill.
const (
	SplitOff         SplitReason = "off"          // the mode, the policy, or the request's form allows no split
	SplitOwnParams   SplitReason = "own_params"   // the body has transfer parameters of its own
	SplitNoPartner   SplitReason = "no_partner"   // no replica may prefill for another
	SplitLocalWarm   SplitReason = "local_warm"   // a split would save nothing: little of the prompt is left to compute
	SplitLocalIdle   SplitReason = "local_idle"   // the chosen replica itself is done as soon, at no higher price
	SplitPrefillBusy SplitReason = "prefill_busy" // a split would pay if the prefill replicas had less to do
)

// Reasons of requests that were to be split.
const (
	SplitDone           SplitReason = "split"           // the prefill replica computed the prompt
	SplitPrefillFailed  SplitReason = "prefill_failed"  // it did not answer, or with an error
	SplitPrefillSlow    SplitReason = "prefill_slow"    // it did not answer in time
	SplitPrefillRefused SplitReason = "prefill_refused" // it refused the request, as the decode replica will
	SplitNoParams       SplitReason = "no_params"       // its answer has no transfer parameters
	SplitClientGone     SplitReason = "client_gone"     // the request ended before its answer
)

// SplitReasons returns every SplitReason.
func SplitReasons() []SplitReason {
	return []SplitReason{
		SplitOff, SplitOwnParams, SplitNoPartner, SplitLocalWarm, SplitLocalIdle, SplitPrefillBusy,
		SplitDone, SplitPrefillFailed, SplitPrefillSlow, SplitPrefillRefused, SplitNoParams, SplitClientGone,
	}
}

// Split says that another replica computes the prompt, and that its KV cache is moved to
// the decision's first replica. It ends once, by the first call of Done, Failed or
// Abandoned; the end of the Reservation abandons it. Any goroutine may call these methods.
type Split struct {
	Prefill   string        // "ip:port" of the replica that computes the prompt
	Rank      string        // its data-parallel rank, "" = none
	Wait      time.Duration // the longest time that its answer is worth waiting for
	Predicted int           // tokens of the prompts expected in its cache
	Moves     int           // tokens of the prompts that the decode replica's cache lacks

	res   *Reservation
	at    *holder                     // of Prefill
	leg   load.Charge                 // of the prefill on it
	local load.Charge                 // of the whole request on the decode replica, after Failed
	terms load.Terms                  // of local
	moved atomic.Int64                // tokens that Prefill's answer offered
	hit   atomic.Int64                // tokens that Prefill took from its cache, plus one; 0 = its answer does not say
	asked atomic.Int64                // Unix ns at which Prefill's answer came, or failed to; 0 = it is not seen
	ended atomic.Pointer[SplitReason] // nil = the prefill is under way

	past past // at Prefill
}

// splitOn charges the prefill on at and the decode on res.here, in one step. local has the
// terms of the whole request on res.here, for when the prefill brings nothing. The ledger
// is locked.
func (res *Reservation) splitOn(at *holder, leg, decode, local load.Terms) *Split {
	s := &Split{res: res, at: at, terms: local, Prefill: at.replica.Addr, Rank: at.rankHeader()}
	leg.Leg = true
	s.leg.Put(at.account, leg)
	at.account.LegBegun()
	decode.From = &s.leg
	res.own.Put(res.here.account, decode)
	res.charge.Store(&res.own)
	res.split = s
	return s
}

// Reason returns how the split ended; while its prefill is under way, SplitDone.
func (s *Split) Reason() SplitReason {
	if why := s.ended.Load(); why != nil {
		return *why
	}
	return SplitDone
}

// end ends the split for this reason, once. It reports whether this call ended it.
func (s *Split) end(why SplitReason) bool {
	if !s.ended.CompareAndSwap(nil, &why) {
		return false
	}
	s.res.d.splits.count(why)
	s.at.account.LegEnded(why == SplitDone)
	return true
}

// Done records that the prefill replica has answered with transfer parameters. moved is
// the number of tokens of the prompt in its cache by its answer, 0 if it does not say.
func (s *Split) Done(moved int) {
	if !s.end(SplitDone) {
		return
	}
	s.moved.Store(int64(moved))
	s.asked.Store(s.res.d.now().UnixNano())
	s.ranked(http.StatusOK)
	s.close(http.StatusOK, s.leg.Unload()) // its event may still come, and shows the replica's speed
	took := max(0, min(s.Moves, moved))
	s.res.d.splits.moved.Add(uint64(took))
	s.res.own.Account().Took(took)
}

// Sent records that the decode replica sees to the prefill, so that its end is not seen
// here: its charge ends with its event, when it is due, or with the request.
func (s *Split) Sent() {
	if s.end(SplitDone) {
		s.res.own.Account().Took(0)
		s.leave()
	}
}

// Failed records that the prefill replica brought nothing that the decode replica can use:
// the decode replica computes the prompt.
func (s *Split) Failed(why SplitReason) {
	if !s.end(why) {
		return
	}
	status := 0 // it was not asked
	if why != SplitPrefillBusy {
		s.asked.Store(s.res.d.now().UnixNano())
	}
	switch why {
	case SplitPrefillFailed, SplitPrefillSlow:
		status = http.StatusBadGateway
	case SplitPrefillRefused:
		status = http.StatusBadRequest
	case SplitNoParams:
		status = http.StatusOK
	}
	s.past.end(s.res.d, s.res.mv, false)
	s.ranked(status)
	s.close(status, s.leg.Release())
	s.res.computes(s)
}

// ranked records the status with which Prefill answered to its rank.
func (s *Split) ranked(status int) {
	if s.Rank != "" {
		s.res.d.RankAnswered(s.Prefill, s.at.asks(), status)
	}
}

// Abandoned records that the request ended before the prefill replica answered.
func (s *Split) Abandoned() {
	if !s.end(SplitClientGone) {
		return
	}
	s.past.end(s.res.d, s.res.mv, false)
	s.leg.Release()
	s.leg.Settle(false)
	s.leave()
}

// over ends the split with its request.
func (s *Split) over() {
	s.Abandoned()
	s.leg.Release()
}

// leave records that Prefill has the prompt, unless it failed, and gives the keys back.
func (s *Split) leave() {
	s.past.end(s.res.d, s.res.mv, true)
	s.past.giveBack()
}

// close judges the prefill replica by a status, 0 = not at all. came reports whether its event had come.
func (s *Split) close(status int, came bool) {
	looked := false
	if status != 0 {
		looked = !s.leg.RecordEnd(status, came) && s.leg.Looked(status, came)
	}
	s.leg.Settle(looked)
	s.leave()
}

// computes replaces the charge on the decode replica by one of the whole request.
func (r *Reservation) computes(s *Split) {
	old := r.charge.Load()
	if r.done.Load() || old != &r.own { // it has ended, or another replica serves it
		return
	}
	old.Release()
	old.Settle(false)
	r.put(&s.local, r.own.Account(), s.terms)
}

// put charges an account from now on in place of the charge so far, which is released.
func (r *Reservation) put(c *load.Charge, a *load.Account, terms load.Terms) {
	now := r.d.now().UnixNano()
	terms.Due += now - terms.Sent
	terms.Sent = now
	r.d.ledger.Lock()
	c.Put(a, terms)
	r.d.ledger.Unlock()
	r.charge.Store(c)
	if r.done.Load() { // Release may have ended the charge so far
		c.Release()
		c.Settle(false)
	}
}

// splits counts the requests that might have been split, by reason.
type splits struct {
	by    [16]atomic.Uint64 // in the order of SplitReasons
	moved atomic.Uint64     // tokens

	phases *prometheus.HistogramVec // see SplitTimes
}

// decided counts a request that one replica serves.
func (s *splits) decided(why SplitReason) {
	if why != SplitDone { // how a split ends is counted then
		s.count(why)
	}
}

func (s *splits) count(why SplitReason) {
	for i, r := range splitReasons {
		if r == why {
			s.by[i].Add(1)
			return
		}
	}
}

var splitReasons = SplitReasons()

// Splits are counts of requests that might have been split. They only rise.
type Splits struct {
	Reasons       map[SplitReason]uint64 // requests, without reasons of none
	Moved         uint64                 // tokens
	Prefill, Move fleet.Spent            // the phases of split requests, as far as the replicas' events show them
}

// Splits returns the counts so far.
func (d *Decider) Splits() Splits {
	s := Splits{Reasons: map[SplitReason]uint64{}, Moved: d.splits.moved.Load(), Prefill: d.splits.spent(phasePrefill), Move: d.splits.spent(phaseMove)}
	for i, why := range splitReasons {
		if n := d.splits.by[i].Load(); n > 0 {
			s.Reasons[why] = n
		}
	}
	return s
}

func (s *splits) spent(phase string) fleet.Spent {
	var m dto.Metric
	if err := s.phases.WithLabelValues(phase).(prometheus.Metric).Write(&m); err != nil {
		return fleet.Spent{} // a histogram always can be written
	}
	return fleet.Spent{Seconds: m.GetHistogram().GetSampleSum(), Requests: float64(m.GetHistogram().GetSampleCount())}
}
