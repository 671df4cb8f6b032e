package render

import (
	"errors"
	"sync"
	"time"

	"warmroute/render/internal/chat"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Job is a request whose prompts are computed, and the limits of that.
type Job struct {
	Request *openai.Request
	// Now is the time on the servers' clock, one of Server.Moments.
	Now time.Time
	// Work is charged; nil: nothing is.
	Work *work.Budget
	// Fits reports whether vLLM takes a prompt of some tokens as it is; truncates says
	// that it cuts one that is longer than the context. nil: Info.MaxLen decides.
	Fits func(tokens int, truncates bool) bool
	// Room has memory for the ids of one prompt, and has them afterwards.
	Room *[]uint32
}

// workroom is the memory that a text is rendered in.
type workroom struct{ text []byte }

// mostText bounds what a workroom keeps.
const mostText = 4 << 20

var rooms = sync.Pool{New: func() any { return new(workroom) }}

func leave(w *workroom) {
	if cap(w.text) <= mostText {
		rooms.Put(w)
	}
}

// Prompts renders a request and encodes it: the ids of each prompt, and the features that
// they depend on. Ids of one prompt are in the job's Room. The error is a [*Refusal], one
// that matches ErrRejected or ErrUnfit, or one of package work.
func (s *Server) Prompts(j Job) (ids [][]uint32, features openai.Features, err error) {
	defer work.Catch(&err)
	j.Work = work.Or(j.Work)
	w := rooms.Get().(*workroom)
	defer leave(w)
	out, err := s.chat.Render(j.Work, w.text[:0], j.Request, j.Now)
	if err != nil {
		return nil, out.Features, refused(err)
	}
	if j.Request.Route == openai.Completions {
		for _, text := range out.TextPrompts {
			before := cap(w.text)
			w.text = append(w.text[:0], text...)
			work.Grown(j.Work, before, w.text)
			ids = append(ids, s.encoder.Append(j.Work, nil, w.text, out.AddSpecialTokens))
		}
	} else {
		w.text = out.Text
		if *j.Room, err = s.encode(j.Work, (*j.Room)[:0], out); err != nil {
			return nil, out.Features, err
		}
		ids = [][]uint32{*j.Room}
	}
	fits := j.Fits
	if fits == nil {
		fits = s.fits
	}
	for _, prompt := range ids {
		if len(prompt) == 0 || !fits(len(prompt), out.Truncates) {
			return nil, out.Features, ErrUnfit
		}
	}
	if len(ids) == 0 {
		return nil, out.Features, ErrUnfit
	}
	return ids, out.Features, nil
}

// encode encodes a prompt as a whole or in its pieces. A model whose vocabulary lacks a
// token of its own code is another model.
func (s *Server) encode(b *work.Budget, dst []uint32, out chat.Rendered) ([]uint32, error) {
	if out.Pieces == nil {
		return s.encoder.Append(b, dst, out.Text, out.AddSpecialTokens), nil
	}
	ids, known := s.encoder.AppendPieces(b, dst, out.Text, out.Pieces)
	if !known {
		return dst, &Refusal{string(chat.RenderedInCode)}
	}
	return ids, nil
}

// Moments are the times at which a request may have been rendered, as far as that makes a
// difference, the likeliest first: now, and within five minutes of the servers' midnight a
// time of the other day, where prompts contain the day.
func (s *Server) Moments(now time.Time) []time.Time { return s.chat.Moments(now) }

// fits reports whether vLLM takes a prompt as it is.
func (s *Server) fits(tokens int, truncates bool) bool {
	limit := s.model.maxLen
	return limit == 0 || tokens < limit || tokens == limit && !truncates
}

// ErrRejected is matched by the error of a request that vLLM answers with a 4xx. The
// error's text is vLLM's objection, where it is known.
var ErrRejected = errors.New("vLLM rejects the request")

// ErrUnfit is returned for a prompt that is empty or does not fit the model.
var ErrUnfit = errors.New("the prompt is empty or longer than the model's context")

// Refusal is the error of a request whose ids are not computed in this process
// although vLLM may serve it.
type Refusal struct {
	// Why is one of a closed set of reasons in snake_case, such as "multimodal".
	Why string
}

func (e *Refusal) Error() string { return "not computed in this process: " + e.Why }

// Refused is the reason.
func (e *Refusal) Refused() string { return e.Why }

// objection is vLLM's own message of a 4xx.
type objection struct{ says string }

func (e *objection) Error() string { return e.says }

// Is makes errors.Is(err, ErrRejected) true.
func (e *objection) Is(target error) bool { return target == ErrRejected }

// refused is the public form of chat's errors; others are returned as they are.
func refused(err error) error {
	var not *chat.NotInProcess
	switch {
	case !errors.As(err, &not):
		return err
	case not.Why != chat.Rejected:
		return &Refusal{string(not.Why)}
	case not.Says != "":
		return &objection{not.Says}
	}
	return ErrRejected
}
