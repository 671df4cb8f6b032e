package tokenizer

import (
	"warmroute/render/internal/prefixcache"
	"warmroute/render/work"
)

// Piece is a stretch of a text that the tokenizer encodes by itself. It begins at the end
// of the piece before.
type Piece struct {
	End int
	// Token: the piece is the name of one token. Other pieces are ordinary text: the
	// only added tokens in it are user-defined ones of a SentencePiece model.
	Token bool
}

// AppendPieces appends the ids of a text in pieces. known is false, and ids is undefined,
// if the vocabulary lacks a token's name. AppendPieces charges b (nil: nothing), and its
// caller catches b's end.
func (t *Tokenizer) AppendPieces(b *work.Budget, dst []uint32, text []byte, pieces []Piece) (ids []uint32, known bool) {
	s := t.scratch(b)
	ids, known = t.pieces(dst, text, 0, pieces, s)
	t.release(s, len(text))
	return ids, known
}

// pieces encodes the pieces of text from a byte on.
func (t *Tokenizer) pieces(dst []uint32, text []byte, from int, pieces []Piece, s *scratch) (ids []uint32, known bool) {
	for _, p := range pieces {
		s.work.Step(wordSteps)
		part := text[from:p.End]
		from = p.End
		if !p.Token && t.within {
			dst = t.piece(dst, s.utf8(part), true, s)
			continue
		}
		if !p.Token {
			dst = t.words(dst, t.normalized(s.utf8(part), s), true, s)
			continue
		}
		id, ok := t.added[string(part)]
		if !ok {
			return dst, false
		}
		dst = s.ids(dst, []uint32{id})
	}
	return dst, true
}

// AppendPieces is Tokenizer.AppendPieces; a text that begins like an earlier one costs its
// new part alone. Every end of a piece is a cut.
func (s *Store) AppendPieces(b *work.Budget, dst []uint32, text []byte, pieces []Piece) (ids []uint32, known bool) {
	sc := s.t.scratch(b)
	ids, known = s.appendPieces(dst, text, pieces, sc)
	s.t.release(sc, len(text))
	return ids, known
}

func (s *Store) appendPieces(dst []uint32, text []byte, pieces []Piece, sc *scratch) (ids []uint32, known bool) {
	t, st := s.t, &sc.store
	st.reset()
	s.pieceCuts(text, pieces, sc)
	hit := s.known(st)
	pos, next := length(hit), 0
	stored := pos
	for i, c := range st.cuts {
		switch {
		case c.at < pos:
			continue
		case hit != nil && c.at == hit.Value.text:
			next = c.piece
			continue
		case c.at < stored+storeStep && i < len(st.cuts)-1:
			continue
		}
		if st.ids, known = t.pieces(st.ids, text, pos, pieces[next:c.piece], sc); !known {
			return dst, false
		}
		st.plan, st.count = append(st.plan, i), append(st.count, len(st.ids))
		pos, stored, next = c.at, c.at, c.piece
	}
	if st.ids, known = t.pieces(st.ids, text, pos, pieces[next:], sc); !known {
		return dst, false
	}
	s.remember(hit, sc)
	return s.appendIDs(dst, hit, sc), true
}

// pieceCuts lists the ends of pieces that may be cuts, each with the hash of the text and of
// the bounds of pieces before it.
func (s *Store) pieceCuts(text []byte, pieces []Piece, sc *scratch) {
	st := &sc.store
	sc.work.Step(len(pieces) + len(text)/32)
	st.cuts = st.cuts[:0]
	h := prefixcache.Hash{Hi: uint64(s.seed), Lo: 1 << 63} // no whole text begins with it
	last := 0
	for i, p := range pieces {
		bound := uint64(p.End) << 1
		if p.Token {
			bound |= 1
		}
		h.Hi = prefixcache.Spread(h.Hi^bound, h.Lo)
		if p.End < last+storeGap {
			continue
		}
		h, last = s.seed.Add(h, text[last:p.End]), p.End
		if p.End >= storeMinimum {
			st.cuts = append(st.cuts, storeCut{at: p.End, piece: i + 1, hash: h})
		}
	}
}
