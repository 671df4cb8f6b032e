package render

import (
	"errors"
	"fmt"
	"time"

	"warmroute/render/chat"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Server computes the ids of requests as a vLLM server of one release does. It is
// safe for concurrent use.
type Server struct {
	model  Model
	chat   *chat.Renderer
	bodies *openai.Reader
	now    func() time.Time
}

// codedVersion is the vLLM whose code is followed where no version is given.
const codedVersion = "0.32.0"

// Server prepares the model for a server of the version, at the time that now
// returns; nil means the clock. Without a version it is what all versions agree on
// or, for a model that vLLM renders in code, codedVersion. Where the model's
// context is not known, every prompt fits it.
func (m Model) Server(version string, now func() time.Time) (*Server, error) {
	if version == "" && m.Chat.Model.Coded() != "" {
		version = codedVersion
	}
	if now == nil {
		now = time.Now
	}
	m.Chat.Version = version
	r, err := chat.New(m.Chat)
	if err != nil {
		return nil, err
	}
	return &Server{m, r, openai.NewReader(openai.DefaultMemory), now}, nil
}

// Refusal is the error of a request whose ids are not computed in this process
// although vLLM may serve it.
type Refusal struct{ Why string }

func (e *Refusal) Error() string { return "not computed in this process: " + e.Why }

// Refused is the reason.
func (e *Refusal) Refused() string { return e.Why }

// errRejected is returned where vLLM's own message is unknown.
var errRejected = errors.New("vLLM rejects the request")

// Tokenize returns the ids of each of a request's prompts. The error is a
// [*Refusal], or states vLLM's objection; it never holds text. The work has no limits.
func (s *Server) Tokenize(path string, body []byte) ([][]uint32, error) {
	return s.TokenizeInto(nil, new([]uint32), path, body)
}

// TokenizeInto is Tokenize within a budget (nil: without limits) and with memory for
// the ids: those of one prompt are in room, as long as it is not used again. Where
// the budget has ended, the error is one of package work.
func (s *Server) TokenizeInto(b *work.Budget, room *[]uint32, path string, body []byte) ([][]uint32, error) {
	route, ok := openai.RouteOf("POST", path)
	if !ok {
		return nil, fmt.Errorf("the path %q is none of the routes with prompts", path)
	}
	req, err := s.bodies.Parse(route, body)
	if err != nil {
		return nil, unread(err)
	}
	if len(req.TokenPrompts) > 0 {
		switch {
		case req.NullSwitch() || req.Raw(openai.FieldSuffix) != nil:
			return nil, errRejected
		case req.Raw(openai.FieldPromptEmbeds) != nil:
			return nil, &Refusal{string(chat.Multimodal)}
		case req.Raw(openai.FieldTruncatePromptTokens) != nil:
			return nil, &Refusal{string(chat.Truncation)}
		}
		return req.TokenPrompts, nil
	}
	ids, _, err := Job{s.chat, s.model.Encoder, work.Or(b), s.fits}.Prompts(req, s.now(), room)
	var not *chat.NotInProcess
	switch {
	case errors.Is(err, ErrUnfit):
		return nil, errors.New("the prompt is empty or longer than the model's context")
	case errors.As(err, &not) && not.Why == chat.Rejected && not.Says != "":
		return nil, errors.New(not.Says)
	case errors.As(err, &not) && not.Why == chat.Rejected:
		return nil, errRejected
	case errors.As(err, &not):
		return nil, &Refusal{string(not.Why)}
	}
	return ids, err
}

// fits reports whether vLLM takes a prompt as it is.
func (s *Server) fits(tokens int, truncates bool) bool {
	limit := s.model.MaxLen
	return limit == 0 || tokens < limit || tokens == limit && !truncates
}

// unread separates bodies that vLLM refuses too from those that only this process
// does not read.
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
