package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"warmroute/render/work"
)

// The types of a SentencePiece model's pieces.
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4
	pieceByte    = 6
)

// spPiece is one piece; its index is its id.
type spPiece struct {
	text  string
	score float32
	kind  uint64
}

// spModel has the fields of a SentencePiece model file that this package reads.
type spModel struct {
	pieces                          []spPiece
	bpe, byteFallback, suffix       bool
	charsmap                        bool
	noDummyPrefix, extraSpace, bare bool
}

// LoadSentencePiece loads a SentencePiece model file like Mistral's: BPE with byte fallback
// and no normalization besides the word mark. Only [Tokenizer.AppendPieces] finds control
// pieces; every text may contain user-defined pieces.
func LoadSentencePiece(path string, o Options) (*Tokenizer, error) {
	data, free, err := readAside(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	defer free()
	t, err := ParseSentencePiece(data, o)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, nil
}

// ParseSentencePiece makes a tokenizer of a SentencePiece model, which it does not keep.
func ParseSentencePiece(data []byte, o Options) (_ *Tokenizer, err error) {
	defer work.Catch(&err)
	b := o.budget()
	b.Step(len(data))
	b.Memory(4 * len(data))
	m := spModel{extraSpace: true}
	if err = m.read(data); err != nil {
		return nil, err
	}
	switch {
	case !m.bpe || !m.byteFallback || m.suffix:
		return nil, errors.New("only SentencePiece models of type BPE with bytes to fall back to are supported")
	case m.charsmap || m.noDummyPrefix || m.extraSpace || m.bare:
		return nil, errors.New("the SentencePiece model normalizes text in a way that is not supported")
	case len(m.pieces) == 0 || len(m.pieces) > maxID:
		return nil, fmt.Errorf("the SentencePiece model has %d pieces", len(m.pieces))
	}
	t := &Tokenizer{modelSize: len(m.pieces), within: true}
	t.normalizers = []normalizer{prependNormalizer{[]byte(mark)}, replaceNormalizer{[]byte(" "), []byte(mark)}}
	named := map[string]uint32{}
	if err := m.model(b, &t.model); err != nil {
		return nil, err
	}
	for i, p := range m.pieces {
		switch p.kind {
		case pieceUser:
			b.Step(len(p.text) * nodeSteps)
			b.Memory(len(p.text) * nodeBytes)
			if !t.afterNormal.add([]byte(p.text), addedToken{Content: p.text, id: uint32(i)}) {
				return nil, fmt.Errorf("piece %d is there twice", i)
			}
			fallthrough
		case pieceControl:
			named[p.text] = uint32(i)
		}
	}
	t.afterNormal.join()
	if err := t.named(named); err != nil {
		return nil, err
	}
	return t, t.newCache(o)
}

// model fills a bpe as SentencePiece merges: two symbols merge if their text is a piece, the
// highest score first.
func (s *spModel) model(w *work.Budget, m *bpe) error {
	size, n := 0, 0
	var scores []float32
	for i, p := range s.pieces {
		switch p.kind {
		case pieceNormal:
			if p.text == "" || !utf8.ValidString(p.text) || math.IsNaN(float64(p.score)) {
				return fmt.Errorf("piece %d is not a text with a score", i)
			}
			n, size = n+1, size+len(p.text)
			scores = append(scores, p.score)
		case pieceUnknown, pieceControl, pieceUser, pieceByte:
		default:
			return fmt.Errorf("piece %d is of a type that is not supported", i)
		}
	}
	w.Memory(size + 2*slotBytes*n)
	m.vocab = newVocabulary(n, size)
	for b := range m.fallback {
		m.fallback[b] = -1
	}
	m.unk, m.byteFallback = -1, true
	bytes := map[string]int{}
	for b := range m.fallback {
		bytes[byteToken(b)] = b
	}
	for i, p := range s.pieces {
		switch p.kind {
		case pieceNormal:
			w.Step(entrySteps + len(p.text)/4)
			if m.vocab.put([]byte(p.text), uint32(i)); m.vocab.crowded {
				return errCrowded
			}
		case pieceByte:
			if b, ok := bytes[p.text]; ok {
				m.fallback[b] = int32(i)
			}
		}
	}
	if m.vocab.count != n || slices.Contains(m.fallback[:], -1) {
		return errors.New("the SentencePiece model has a piece twice or lacks one of a byte")
	}
	return s.merges(w, m, scores)
}

// merges ranks pieces by their scores; equal scores have equal ranks.
func (s *spModel) merges(w *work.Budget, m *bpe, scores []float32) error {
	slices.SortFunc(scores, func(a, b float32) int {
		w.Step(1)
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	ranks := map[float32]uint32{}
	for _, score := range scores {
		if _, ok := ranks[score]; !ok {
			ranks[score] = uint32(len(ranks))
		}
	}
	for i, p := range s.pieces {
		w.Step(entrySteps * len(p.text) / 4)
		for _, r := range p.text {
			if _, ok := m.vocab.id([]byte(string(r))); p.kind == pieceNormal && !ok {
				return fmt.Errorf("piece %d has a character that is no piece", i)
			}
		}
	}
	if err := m.mergeAll(w, func(merge func(text []byte, rank uint32)) {
		for _, p := range s.pieces {
			if p.kind == pieceNormal {
				merge([]byte(p.text), ranks[p.score])
			}
		}
	}, func(text []byte, at int) bool { return utf8.RuneStart(text[at]) }); err != nil {
		return err
	}
	m.prepare(w)
	m.prepareCuts(false)
	return nil
}

// read reads the protocol buffer (ModelProto of sentencepiece_model.proto).
func (s *spModel) read(data []byte) error {
	return fields(data, func(num protowire.Number, v uint64, b []byte) error {
		switch num {
		case 1:
			p := spPiece{kind: pieceNormal}
			err := fields(b, func(num protowire.Number, v uint64, b []byte) error {
				switch num {
				case 1:
					p.text = string(b)
				case 2:
					p.score = math.Float32frombits(uint32(v))
				case 3:
					p.kind = v
				}
				return nil
			})
			s.pieces = append(s.pieces, p)
			return err
		case 2:
			return fields(b, func(num protowire.Number, v uint64, _ []byte) error {
				switch num {
				case 3:
					s.bpe = v == 2
				case 24:
					s.suffix = v != 0
				case 35:
					s.byteFallback = v != 0
				}
				return nil
			})
		case 3:
			return fields(b, func(num protowire.Number, v uint64, b []byte) error {
				switch num {
				case 2:
					s.charsmap = len(b) > 0
				case 3:
					s.noDummyPrefix = v == 0
				case 4:
					s.extraSpace = v != 0
				case 5:
					s.bare = v == 0
				}
				return nil
			})
		}
		return nil
	})
}

// fields calls f for each field of a message: numbers as v, bytes as b.
func fields(data []byte, f func(num protowire.Number, v uint64, b []byte) error) error {
	for len(data) > 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errors.New("the SentencePiece model is no protocol buffer")
		}
		data = data[n:]
		var v uint64
		var b []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var x uint32
			x, n = protowire.ConsumeFixed32(data)
			v = uint64(x)
		case protowire.BytesType:
			b, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(num, kind, data)
		}
		if n < 0 {
			return errors.New("the SentencePiece model is cut off")
		}
		if err := f(num, v, b); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}
