package render

import (
	"errors"
	"sync"
	"time"

	"warmroute/render/internal/chat"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Job is a request, with the limits for computing its prompts.
type Job struct {
	Request *openai.Request
	// Now is the time on the servers' clock, one of Server.Moments.
	Now time.Time
	// Work pays for the computation; nil: nothing does.
	Work *work.Budget
	// Fits reports whether vLLM takes a prompt of so many tokens unchanged; truncates:
	// vLLM cuts a prompt that is longer than the context. nil: Info.MaxLen decides.
	Fits func(tokens int, truncates bool) bool
	// Room is memory for the ids of one prompt. Prompts leaves the ids in it. nil: Prompts
	// allocates some.
	Room *[]uint32
}

// workroom is memory for rendering a text.
type workroom struct{ text []byte }

// mostText bounds the text of a workroom in the pool, in bytes.
const mostText = 4 << 20

var rooms = sync.Pool{New: func() any { return new(workroom) }}

func leave(w *workroom) {
	if cap(w.text) <= mostText {
		rooms.Put(w)
	}
}

// Prompts returns the ids of each prompt of a request, the features on which they depend,
// and a hash of what flags of the servers may give another meaning, such as the reasoning
// effort and chat_template_kwargs (0: none). The ids of one prompt are in the job's Room. The error is a [*Refusal], matches
// ErrRejected or ErrUnfit, or is one of package work.
func (s *Server) Prompts(j Job) (ids [][]uint32, features openai.Features, setting uint64, err error) {
	defer work.Catch(&err)
	j.Work = work.Or(j.Work)
	if j.Room == nil {
		j.Room = new([]uint32)
	}
	w := rooms.Get().(*workroom)
	defer leave(w)
	out, err := s.chat.Render(j.Work, w.text[:0], j.Request, j.Now)
	if err != nil {
		return nil, out.Features, out.Setting, refused(err)
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
			return nil, out.Features, out.Setting, err
		}
		ids = [][]uint32{*j.Room}
	}
	fits := j.Fits
	if fits == nil {
		fits = s.fits
	}
	for _, prompt := range ids {
		if len(prompt) == 0 || !fits(len(prompt), out.Truncates) {
			return nil, out.Features, out.Setting, ErrUnfit
		}
	}
	if len(ids) == 0 {
		return nil, out.Features, out.Setting, ErrUnfit
	}
	return ids, out.Features, out.Setting, nil
}

// encode encodes a prompt as a whole or in its pieces. It refuses a vocabulary that lacks
// a token that vLLM's code for the model writes: the code is of another model.
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

// Moments returns the times at which a server may have rendered a request, the likeliest
// first: now, and within five minutes of the servers' midnight a time of the other day,
// if prompts contain the day.
func (s *Server) Moments(now time.Time) []time.Time { return s.chat.Moments(now) }

// fits is Job.Fits by Info.MaxLen.
func (s *Server) fits(tokens int, truncates bool) bool {
	limit := s.model.maxLen
	return limit == 0 || tokens < limit || tokens == limit && !truncates
}

// ErrRejected is matched by the error of a request that vLLM answers with a 4xx. The
// error's text is vLLM's objection, if known.
var ErrRejected = errors.New("vLLM rejects the request")

// ErrUnfit is returned for a prompt that is empty or does not fit the model.
var ErrUnfit = errors.New("the prompt is empty or longer than the model's context")

// Refusal is the error of a request that vLLM may serve, but whose ids this package does
// not compute.
type Refusal struct {
	// Why is one of a closed set of reasons in snake_case, such as "multimodal".
	Why string
}

func (e *Refusal) Error() string { return "not computed in this process: " + e.Why }

// Refused returns the reason.
func (e *Refusal) Refused() string { return e.Why }

// objection is vLLM's own message of a 4xx.
type objection struct{ says string }

func (e *objection) Error() string { return e.says }

// Is makes errors.Is(err, ErrRejected) true.
func (e *objection) Is(target error) bool { return target == ErrRejected }

// refused returns the public form of package chat's errors, and other errors unchanged.
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
