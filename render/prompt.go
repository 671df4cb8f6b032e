package render

import (
	"errors"
	"sync"
	"time"

	"warmroute/render/chat"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Encoder turns a text into token ids, appended to dst, as the model's
// tokenizer does. It gets no memory for them, so it should determine their number
// before it allocates. The work is charged to b (nil: to nothing); a charge that cannot
// be paid panics, and the caller catches it (package work).
type Encoder interface {
	Append(b *work.Budget, dst []uint32, text []byte, addSpecial bool) []uint32
}

// PieceEncoder is an Encoder that can encode a text piece by piece. known is false
// when a piece names a token that the vocabulary does not have.
type PieceEncoder interface {
	AppendPieces(b *work.Budget, dst []uint32, text []byte, pieces []tokenizer.Piece) (ids []uint32, known bool)
}

// ErrUnfit is returned for a prompt that is empty or does not fit the model.
var ErrUnfit = errors.New("the prompt is empty or longer than the model's context")

// Job is how prompts are computed, and what that is charged to.
type Job struct {
	Renderer *chat.Renderer
	Encoder  Encoder
	Work     *work.Budget
	// Fits reports whether a prompt of some tokens fits the model; truncates says that
	// vLLM cuts one that does not.
	Fits func(tokens int, truncates bool) bool
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

// Prompts renders a request as at a moment and encodes it. The ids are in room, as
// far as they are of one prompt. The error is a *chat.NotInProcess, ErrUnfit, or one
// of package work.
func (j Job) Prompts(req *openai.Request, now time.Time, room *[]uint32) (ids [][]uint32, features chat.Features, err error) {
	defer work.Catch(&err)
	w := rooms.Get().(*workroom)
	defer leave(w)
	out, err := j.Renderer.Render(j.Work, w.text[:0], req, now)
	if err != nil {
		return nil, out.Features, err
	}
	if req.Route == openai.Completions {
		for _, text := range out.TextPrompts {
			before := cap(w.text)
			w.text = append(w.text[:0], text...)
			work.Grown(j.Work, before, w.text)
			ids = append(ids, j.Encoder.Append(j.Work, nil, w.text, out.AddSpecialTokens))
		}
	} else {
		w.text = out.Text
		if *room, err = j.encode((*room)[:0], out); err != nil {
			return nil, out.Features, err
		}
		ids = [][]uint32{*room}
	}
	for _, prompt := range ids {
		if len(prompt) == 0 || !j.Fits(len(prompt), out.Truncates) {
			return nil, out.Features, ErrUnfit
		}
	}
	if len(ids) == 0 {
		return nil, out.Features, ErrUnfit
	}
	return ids, out.Features, nil
}

// encode encodes a prompt as a whole or in its pieces. A model whose
// vocabulary lacks a token of its own code is another model.
func (j Job) encode(dst []uint32, out chat.Rendered) ([]uint32, error) {
	if out.Pieces == nil {
		return j.Encoder.Append(j.Work, dst, out.Text, out.AddSpecialTokens), nil
	}
	pieces, ok := j.Encoder.(PieceEncoder)
	if !ok {
		return dst, &chat.NotInProcess{Why: chat.RenderedInCode}
	}
	ids, ok := pieces.AppendPieces(j.Work, dst, out.Text, out.Pieces)
	if !ok {
		return dst, &chat.NotInProcess{Why: chat.RenderedInCode}
	}
	return ids, nil
}
