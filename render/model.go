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

// Model has the parts of a model's files and of its servers' flags that decide prompts.
// Open reads one. It is safe for concurrent use.
type Model struct {
	chat    chat.Options // without Version and Work
	encoder encoder
	byClass func() (encoder, error) // nil: Info.ByClass is false
	maxLen  int

	mu       sync.Mutex // held while a template is compiled
	compiled []compiled // the newest last
}

// encoder appends the token ids of a text to dst, as the model's tokenizer does. It charges
// b (nil: nothing); a charge that b cannot pay panics, and the caller catches it (package
// work). known is false if a piece names a token that the vocabulary lacks.
type encoder interface {
	Append(b *work.Budget, dst []uint32, text []byte, addSpecial bool) []uint32
	AppendPieces(b *work.Budget, dst []uint32, text []byte, pieces []tokenizer.Piece) (ids []uint32, known bool)
}

// compiled is a model's renderer for a version of vLLM.
type compiled struct {
	version  string
	renderer *chat.Renderer
}

// versionsKept bounds the versions of vLLM for which a Model keeps renderers.
const versionsKept = 4

// Info describes a model.
type Info struct {
	// Code names the code of vLLM that writes the model's chats, such as
	// "mistral-common"; "": vLLM renders them with a chat template.
	Code string
	// Template is the source of the chat template; "": there is none.
	Template string
	// MaxLen is the context in tokens; 0: not known.
	MaxLen int
	// ByClass: some releases of transformers 5 encode by the model's tokenizer.json, others
	// by the class that tokenizer_config.json names, and the ids differ. Only a server's
	// answer shows which: see Server.ByClass.
	ByClass bool
}

// Info returns the model's description.
func (m *Model) Info() Info {
	return Info{m.chat.Model.Coded(), m.chat.Template, m.maxLen, m.byClass != nil}
}

// Encode appends the ids of a text, with the model's special tokens around it (BOS and the
// like) if addSpecial is set, as tokenizers' encode does. The work has no limits.
func (m *Model) Encode(dst []uint32, text []byte, addSpecial bool) []uint32 {
	return m.encoder.Append(nil, dst, text, addSpecial)
}

// CodedVersion is the release of vLLM whose code this package follows for a model with
// Info.Code.
const CodedVersion = "0.32.0"

// Server prepares the model for servers of a release of vLLM ("0.32.0"), or of SGLang
// ("sglang 0.5.23"), of whose releases it takes any for 0.5.23. It takes vLLM's releases
// before 0.21 and after 0.33 for these two; for a release between 0.21 and 0.32, and for "",
// the Server returns ids if all that it may be agree. now is the servers' clock for Tokenize, nil the
// machine's. Server fails if the chat template does not compile, or needs more work than
// its size allows or more time than ctx leaves.
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
	o, size := m.chat, len(m.chat.Template)
	if o.ToolTemplate != nil {
		size += len(*o.ToolTemplate)
	}
	o.Version, o.Work = version, work.New(ctx, work.Limits{}, size)
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

// IsEffort reports whether vLLM accepts a name as a reasoning effort.
func IsEffort(name string) bool { return chat.IsEffort(name) }

// IsSGLang reports whether a version is SGLang's, such as "sglang 0.5.23".
func IsSGLang(version string) bool { return chat.IsSGLang(version) }

// ReadsSalt reports whether servers of a version may keep the prompts of a route apart by
// the body's cache_salt: vLLM 0.21 does not on /v1/messages.
func ReadsSalt(version string, route openai.Route) bool { return chat.ReadsSalt(version, route) }
