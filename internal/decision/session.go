package decision

import (
	"fmt"
	"strings"
	"time"

	"warmroute/internal/sessions"
)

// SessionRecord is what a Record tells of the session of a request, and of its wait.
type SessionRecord struct {
	Number  uint64        `json:"number,omitempty"`  // the same for all requests of the session; 0 = it is held
	Turn    int           `json:"turn,omitempty"`    // which of the session's requests it is, from 1 on
	Idle    time.Duration `json:"idle_ns,omitempty"` // from the session's latest answer to the request
	Working bool          `json:"live,omitempty"`    // the session was live when the request came
	Held    time.Duration `json:"held_ns,omitempty"`
	Ahead   int           `json:"ahead,omitempty"`          // requests that were held before it
	Live    int           `json:"live_sessions,omitempty"`  // where it lacked the least room
	Context int           `json:"context,omitempty"`        // tokens of the prompt
	Lacking int           `json:"lacking_tokens,omitempty"` // of the room for it beside these sessions
	Went    bool          `json:"would_be_held,omitempty"`  // it was not held, for it may not wait
}

// NewHeld returns the record of a request that is or was held.
func NewHeld(w sessions.Wait) *SessionRecord {
	return &SessionRecord{Held: w.Waited, Ahead: w.Ahead, Live: w.Live, Context: w.Context, Lacking: w.Lacking}
}

// lacks records what a request that goes would have waited for; false: nothing.
func (r *Record) lacks(w *sessions.Work) bool {
	if w == nil || w.Lacks == (sessions.Wait{}) {
		return false
	}
	r.Session = NewHeld(w.Lacks)
	r.Session.Went = true
	return true
}

// Sessions adds the session of d's request, which has waited so.
func (r *Record) Sessions(d *Decision, w sessions.Wait) {
	if w != (sessions.Wait{}) {
		r.Session = NewHeld(w)
	}
	if d.Reservation == nil || d.Reservation.work == nil {
		return
	}
	if r.Session == nil {
		r.Session = new(SessionRecord)
	}
	of, s := d.Reservation.work, r.Session
	s.Number, s.Turn, s.Idle, s.Working, s.Context = of.Session, of.Turn, of.Idle, of.Live, r.Tokens
}

// say tells of the session and of the wait, "" of neither.
func (s *SessionRecord) say() string {
	switch {
	case s == nil:
		return ""
	case s.Number == 0:
		return s.waited()
	}
	return strings.TrimSuffix(fmt.Sprintf("turn %d of a session, %s; %s", s.Turn, s.was(), s.waited()), "; ")
}

// was tells how the session was when the request came.
func (s *SessionRecord) was() string {
	switch {
	case s.Turn == 1:
		return "its first"
	case s.Working:
		return fmt.Sprintf("live, %.1f s after its last answer", s.Idle.Seconds())
	}
	return fmt.Sprintf("no longer live, %.1f s after its last answer", s.Idle.Seconds())
}

// waited tells of the wait, "" if there was none.
func (s *SessionRecord) waited() string {
	if !s.Went && s.Held == 0 && s.Number != 0 {
		return ""
	}
	held := "would be held"
	if !s.Went {
		held = fmt.Sprintf("held for %.1f s", s.Held.Seconds())
	}
	if held += fmt.Sprintf(" behind %d", s.Ahead); s.Lacking == 0 {
		return held
	}
	return held + fmt.Sprintf(": its context of %d tokens did not fit beside %d live sessions, %d tokens were lacking", s.Context, s.Live, s.Lacking)
}
