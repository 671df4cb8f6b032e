package tokenizer

// Piece is a stretch of a text that is encoded by itself. It begins where the
// piece before ends.
type Piece struct {
	End int
	// Token: the piece is the name of one token. Otherwise it is ordinary text, in
	// which no added token is found but a SentencePiece model's user-defined ones.
	Token bool
}

// AppendPieces appends the ids of a text that is made of pieces. known is false,
// and nothing is said of the ids, when a token's name is not in the vocabulary.
func (t *Tokenizer) AppendPieces(dst []uint32, text []byte, pieces []Piece) (ids []uint32, known bool) {
	s := t.scratch()
	defer t.release(s, len(text))
	start := 0
	for _, p := range pieces {
		part := text[start:p.End]
		start = p.End
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
		dst = append(dst, id)
	}
	return dst, true
}

// AppendPieces is Tokenizer.AppendPieces.
func (s *Store) AppendPieces(dst []uint32, text []byte, pieces []Piece) (ids []uint32, known bool) {
	return s.t.AppendPieces(dst, text, pieces)
}
