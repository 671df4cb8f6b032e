package render

import (
	"errors"
	"fmt"
	"time"

	"warmroute/render/internal/chat"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Server computes the ids of requests as a vLLM server of one release does. It is
// safe for concurrent use.
type Server struct {
	model   *Model
	chat    *chat.Renderer
	encoder encoder
	bodies  *openai.Reader
	now     func() time.Time
}

// ByClass returns the same server with a transformers that encodes by the tokenizer's class
// and not by its file (Info.ByClass). The first call for a model loads the tokenizer again,
// which may take a second.
func (s *Server) ByClass() (*Server, error) {
	if s.model.byClass == nil {
		return nil, errors.New("the model's tokenizer is encoded by its file alone")
	}
	e, err := s.model.byClass()
	if err != nil {
		return nil, err
	}
	other := *s
	other.encoder = e
	return &other, nil
}

// Tokenize returns the ids of each prompt in a body that is sent to a path, such as
// /v1/chat/completions. The error is a [*Refusal], or states vLLM's objection; it never
// quotes the prompt. The work has no limits.
func (s *Server) Tokenize(path string, body []byte) ([][]uint32, error) {
	return s.TokenizeInto(nil, new([]uint32), path, body)
}

// TokenizeInto is Tokenize within a budget (nil: without limits). The ids of one prompt
// are in room, and valid until its next use. If the budget ends, the error is one of
// package work.
func (s *Server) TokenizeInto(b *work.Budget, room *[]uint32, path string, body []byte) ([][]uint32, error) {
	req, err := s.read(b, path, body)
	if err != nil {
		return nil, err
	}
	if len(req.TokenPrompts) > 0 {
		switch {
		case req.NullSwitch() || req.Raw(openai.FieldSuffix) != nil:
			return nil, ErrRejected
		case req.Raw(openai.FieldPromptEmbeds) != nil:
			return nil, &Refusal{string(chat.Multimodal)}
		case req.Raw(openai.FieldTruncatePromptTokens) != nil:
			return nil, &Refusal{string(chat.Truncation)}
		}
		return req.TokenPrompts, nil
	}
	ids, _, _, err := s.Prompts(Job{Request: req, Now: s.now(), Work: b, Room: room})
	return ids, err
}

// AppendText appends the text of a chat, Responses or Messages request as vLLM gives it to
// its tokenizer, and reports whether the tokenizer adds special tokens around it. The
// error is Tokenize's.
func (s *Server) AppendText(dst []byte, path string, body []byte) (text []byte, addSpecial bool, err error) {
	req, err := s.read(nil, path, body)
	if err != nil {
		return dst, false, err
	}
	if req.Route == openai.Completions {
		return dst, false, errors.New("the prompts of /v1/completions are in the body")
	}
	out, err := s.chat.Render(nil, dst, req, s.now())
	if err != nil {
		return dst, false, refused(err)
	}
	return out.Text, out.AddSpecialTokens, nil
}

// read reads a body that is sent to a path, within a budget.
func (s *Server) read(b *work.Budget, path string, body []byte) (*openai.Request, error) {
	route, ok := openai.RouteOf("POST", path)
	if !ok {
		return nil, fmt.Errorf("the path %q is none of the routes with prompts", path)
	}
	req, err := s.bodies.ParseWithin(b, route, body)
	switch {
	case err == nil:
		return req, nil
	case b != nil && b.Err() != nil:
		return nil, b.Err()
	}
	return nil, unread(err)
}

// unread returns a Refusal for a body that vLLM may read although this package does not,
// and other errors unchanged.
func unread(err error) error {
	var unread *openai.Error
	if errors.As(err, &unread) {
		switch unread.Reason {
		case openai.TooDeep, openai.LoneSurrogate, openai.DuplicateKey, openai.RepeatedField, openai.TooWide, openai.BadPrompt: // of token ids vLLM also reads true, 1.0 and "1"
			return &Refusal{string(unread.Reason)}
		}
	}
	return err
}
