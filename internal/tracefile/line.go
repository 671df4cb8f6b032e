package tracefile

import (
	"strconv"
	"time"
	"unicode/utf8"
)

// Replica is a replica of the fleet, as a line of the trace describes it.
type Replica struct {
	Addr        string `json:"replica"`
	Model       string `json:"model,omitempty"` // the base model that it serves
	BlockTokens int    `json:"block,omitempty"`
	Blocks      int    `json:"blocks,omitempty"` // of its KV cache, of one rank; 0 = not known
	Ranks       int    `json:"ranks,omitempty"`
}

// Prefilled is what the replicas of a model have counted since the line before. It shows their speed
// where no request does: hints are withheld, and answers are not streamed.
type Prefilled struct {
	Model    string  // the base model
	Seconds  float64 // of prefills, all requests together
	Tokens   int     // that these have computed
	Requests int
}

// Span is a range of consecutive numbers of blocks.
type Span struct{ First, Count uint64 }

// Version is the format's. It changes when a reader of the former cannot read it.
const Version = 1

func appendRun(b []byte, run string, at time.Time) []byte {
	b = append(b, `{"trace":`...)
	b = strconv.AppendInt(b, Version, 10)
	b = append(b, `,"run":"`...)
	b = append(b, run...)
	b = append(b, `","t":`...)
	return append(appendTime(b, at), "}\n"...)
}

func appendFleet(b []byte, fleet []Replica) []byte {
	b = append(b, `{"fleet":[`...)
	for i, r := range fleet {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"replica":`...)
		b = appendText(b, r.Addr)
		b = appendText(append(b, `,"model":`...), r.Model)
		b = appendNumber(b, `,"block":`, r.BlockTokens)
		b = appendNumber(b, `,"blocks":`, r.Blocks)
		b = appendNumber(b, `,"ranks":`, r.Ranks)
		b = append(b, '}')
	}
	return append(b, "]}\n"...)
}

func appendPrefilled(b []byte, p *Prefilled) []byte {
	b = appendText(append(b, `{"prefills":`...), p.Model)
	b = strconv.AppendFloat(append(b, `,"seconds":`...), p.Seconds, 'f', 3, 64)
	b = appendNumber(b, `,"tokens":`, p.Tokens)
	b = appendNumber(b, `,"requests":`, p.Requests)
	return append(b, "}\n"...)
}

func appendDecided(b []byte, d *Decided, spans []Span) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, d.Number, 10)
	b = appendTime(append(b, `,"t":`...), d.At)
	b = appendText(append(b, `,"route":`...), d.Route)
	b = appendText(append(b, `,"model":`...), d.Model)
	b = appendNumber(b, `,"tokens":`, d.Tokens)
	if len(spans) > 0 {
		b = appendNumber(b, `,"block":`, d.BlockTokens)
		b = append(b, `,"blocks":[`...)
		for i, s := range spans {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, s.First, 10)
			b = strconv.AppendUint(append(b, ','), s.Count, 10)
		}
		b = append(b, ']')
	}
	b = appendNumber(b, `,"cached":`, d.Cached)
	b = appendNumber(b, `,"held":`, d.Held)
	b = appendText(append(b, `,"reason":`...), d.Reason)
	if d.Replica != "" {
		b = appendText(append(b, `,"to":`...), d.Replica)
	}
	if d.Withheld != "" {
		b = appendText(append(b, `,"withheld":`...), d.Withheld)
	}
	b = appendSession(b, &d.Session)
	return append(b, "}\n"...)
}

func appendSession(b []byte, s *Session) []byte {
	if s.Number != 0 {
		b = strconv.AppendUint(append(b, `,"session":`...), s.Number, 10)
		b = appendNumber(b, `,"turn":`, s.Turn)
	}
	if s.Waited > 0 {
		b = strconv.AppendFloat(append(b, `,"waited":`...), s.Waited.Seconds(), 'f', 3, 64)
	}
	if s.Lacked > 0 {
		b = appendNumber(b, `,"lacked":`, s.Lacked)
	}
	if s.Behind > 0 {
		b = appendNumber(b, `,"behind":`, s.Behind)
	}
	return b
}

func appendEnded(b []byte, e *Ended) []byte {
	b = append(b, `{"end":`...)
	b = strconv.AppendUint(b, e.Number, 10)
	b = appendTime(append(b, `,"t":`...), e.At)
	if !e.First.IsZero() {
		b = appendTime(append(b, `,"first":`...), e.First)
	}
	if e.Status != 0 {
		b = appendNumber(b, `,"status":`, e.Status)
	}
	if e.Served != "" {
		b = appendText(append(b, `,"served":`...), e.Served)
	}
	return append(b, "}\n"...)
}

func appendCounted(b []byte, c *Counted) []byte {
	b = append(b, `{"counted":`...)
	b = strconv.AppendUint(b, c.Number, 10)
	b = appendNumber(b, `,"prompt":`, c.Prompt)
	if !c.NoCached {
		b = appendNumber(b, `,"cached":`, c.Cached)
	}
	b = appendNumber(b, `,"output":`, c.Output)
	b = appendNumber(b, `,"first_us":`, int(c.First.Microseconds()))
	b = appendNumber(b, `,"took_us":`, int(c.Took.Microseconds()))
	return append(b, "}\n"...)
}

func appendNumber(b []byte, field string, v int) []byte {
	return strconv.AppendInt(append(b, field...), int64(v), 10)
}

// appendTime appends Unix seconds with microseconds.
func appendTime(b []byte, t time.Time) []byte {
	us := t.UnixMicro()
	b = strconv.AppendInt(b, us/1e6, 10)
	b = append(b, '.')
	for digit, rest := int64(100_000), us%1e6; digit > 0; digit /= 10 {
		b = append(b, byte('0'+rest/digit%10))
	}
	return b
}

// longestText bounds a name in a line: a replica chooses its model's.
const longestText = 256

// appendText appends s as JSON. Characters that need an escape become "?": the names in
// the trace have none, unless a replica makes one up.
func appendText(b []byte, s string) []byte {
	s = s[:min(len(s), longestText)]
	b = append(b, '"')
	for _, r := range s {
		if r < ' ' || r == '"' || r == '\\' || r == utf8.RuneError {
			r = '?'
		}
		b = utf8.AppendRune(b, r)
	}
	return append(b, '"')
}
