package render

import (
	"context"
	"sync"
	"time"

	"warmroute/render/internal/chat"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Model is a model's files and the flags of its servers, as far as they decide prompts.
// Open reads one. It is safe for concurrent use.
type Model struct {
	chat    chat.Options // how its servers render, of whatever version
	encoder encoder
	byClass func() (encoder, error) // nil: Info.ByClass is false
	maxLen  int

	mu       sync.Mutex // held while a template is compiled
	compiled []compiled // the newest last
}

// encoder turns a text into token ids, appended to dst, as the model's tokenizer does. The
// work is charged to b (nil: to nothing); a charge that cannot be paid panics, and the
// caller catches it (package work). known is false when a piece names a token that the
// vocabulary does not have.
type encoder interface {
	Append(b *work.Budget, dst []uint32, text []byte, addSpecial bool) []uint32
	AppendPieces(b *work.Budget, dst []uint32, text []byte, pieces []tokenizer.Piece) (ids []uint32, known bool)
}

// compiled is a model's renderer for a version of vLLM.
type compiled struct {
	version  string
	renderer *chat.Renderer
}

// versionsKept is how many versions of vLLM a model is kept compiled for.
const versionsKept = 4

// Info describes a model.
type Info struct {
	// Code names the code of vLLM that writes the model's chats, such as
	// "mistral-common"; "": a chat template does.
	Code string
	// Template is the source of the chat template; "": there is none.
	Template string
	// MaxLen is the context in tokens; 0: not known.
	MaxLen int
	// ByClass: releases of transformers 5 differ in whether they encode by the model's
	// tokenizer.json or by the class that tokenizer_config.json names, and the ids are
	// not the same. Only a server's answer decides: see Server.ByClass.
	ByClass bool
}

// Info describes the model.
func (m *Model) Info() Info {
	return Info{m.chat.Model.Coded(), m.chat.Template, m.maxLen, m.byClass != nil}
}

// Encode appends the ids of a text, with the model's special tokens around it (BOS and the
// like) if addSpecial is set, as tokenizers' encode does. The work has no limits.
func (m *Model) Encode(dst []uint32, text []byte, addSpecial bool) []uint32 {
	return m.encoder.Append(nil, dst, text, addSpecial)
}

// CodedVersion is the release of vLLM whose code is followed for a model with Info.Code.
const CodedVersion = "0.32.0"

// Server prepares the model for servers of a release of vLLM ("0.32.0"). Releases before
// 0.21 and after 0.32 are taken for these two; for a release between them, and for "",
// there are ids where these two agree. now is the servers' clock for Tokenize, nil the machine's. The error
// is that of a chat template which does not compile, or which needs more work than its
// size allows or than ctx leaves time for.
func (m *Model) Server(ctx context.Context, version string, now func() time.Time) (*Server, error) {
	r, err := m.renderer(ctx, version)
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &Server{model: m, chat: r, encoder: m.encoder, bodies: openai.NewReader(openai.DefaultMemory), now: now}, nil
}

// renderer compiles the model's template for a version once.
func (m *Model) renderer(ctx context.Context, version string) (*chat.Renderer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.compiled {
		if c.version == version {
			return c.renderer, nil
		}
	}
	o := m.chat
	o.Version, o.Work = version, work.New(ctx, work.Limits{}, len(o.Template)+len(o.ToolTemplate))
	r, err := chat.New(o)
	if err != nil {
		return nil, err
	}
	if len(m.compiled) == versionsKept {
		m.compiled = m.compiled[1:]
	}
	m.compiled = append(m.compiled, compiled{version, r})
	return r, nil
}

// ReadsSalt reports whether servers of a version keep the prompts of a route apart by the
// body's cache_salt, or may do so: vLLM 0.21 does not on /v1/messages.
func ReadsSalt(version string, route openai.Route) bool { return chat.ReadsSalt(version, route) }
