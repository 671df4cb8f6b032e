package filter

import (
	"warmroute/internal/tracefile"
	"warmroute/prefixhash"
)

// write queues the decision in s for the trace file under its record's number, and reports whether
// it has a line there. Requests whose model no replica serves have none.
func (r *Router) write(s *scratch, seq uint64) bool {
	rec := &s.work.Record
	if r.o.Requests == nil || rec.Model == "" {
		return false
	}
	line := tracefile.Decided{
		Number: seq, At: rec.At, Route: rec.Route, Model: rec.Model, Reason: string(rec.Reason),
		Tokens: rec.Tokens, Cached: min(rec.Predicted, rec.Tokens), Withheld: string(rec.Withheld),
	}
	if s := rec.Session; s != nil {
		line.Session = tracefile.Session{Number: s.Number, Turn: s.Turn, Idle: s.Idle, Live: s.Working, Waited: s.Held, Lacked: s.Lacking, Behind: s.Ahead}
	}
	line.Replica = rec.First()
	for i := range rec.Candidates {
		line.Held = max(line.Held, min(rec.Candidates[i].State.Match.Matched(), rec.Tokens))
	}
	line.Keys, line.BlockTokens = s.blocks()
	if line.BlockTokens > 0 { // a text's keys may cover more than the tokens that count
		line.Keys = line.Keys[:min(len(line.Keys), rec.Tokens/line.BlockTokens+1)]
	}
	return r.o.Requests.Decided(&line)
}

// blocks returns the keys of the prompts by which the decision was taken, and the tokens
// of a block.
func (s *scratch) blocks() ([]prefixhash.Key, int) {
	switch {
	case s.ended():
	case s.ask.Prompts != nil:
		return s.work.Blocks()
	case s.ask.Text != nil:
		s.spread = prefixhash.TextMarks.Spread(s.spread[:0], s.ask.Text)
		return s.spread, prefixhash.TextUnit
	}
	return nil, 0
}

// traceEnd queues the end of the stream's request for the trace file.
func (st *stream) traceEnd() {
	if !st.d.Traced {
		return
	}
	end := tracefile.Ended{Number: st.d.Seq, Status: st.status, Served: st.served}
	if st.d.Reservation != nil {
		end.First = st.d.Reservation.FirstTokenAt()
	}
	st.srv.router.o.Requests.Ended(end)
}
