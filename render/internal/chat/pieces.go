package chat

import (
	"warmroute/render/internal/tokenizer"
	"warmroute/render/work"
)

// pieceWriter writes a prompt as pieces: text, and the names of control tokens. It charges
// their cost to the budget.
type pieceWriter struct {
	work *work.Budget
	out  *Rendered
	base int // the prompt's start in out.Text
}

func (w *pieceWriter) token(name string) { w.piece(name, true) }

func (w *pieceWriter) text(s string) {
	if s != "" {
		w.piece(s, false)
	}
}

func (w *pieceWriter) piece(s string, token bool) {
	before := cap(w.out.Text)
	w.out.Text = append(w.out.Text, s...)
	work.Grown(w.work, before, w.out.Text)
	w.work.Step(1 + len(s)/32)
	w.work.Memory(32)
	w.out.Pieces = append(w.out.Pieces, tokenizer.Piece{End: len(w.out.Text) - w.base, Token: token})
}
