package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Prompt is one prompt of a request as vLLM's token ids. It is shared and must
// not be changed.
type Prompt struct {
	Tokens []uint32
	// MM are the multimodal items of the prompt, by offset.
	MM []prefixhash.MM
	// Partial reports that Tokens is only a prefix of the prompt (up to the first
	// multimodal placeholder, whose hash is not known), so its last token may be
	// cached too.
	Partial bool
}

// Result is the answer of a Source.
type Result struct {
	Prompts []Prompt
	// Other has the prompts of the other day: if they contain the date and the
	// servers' clock may be on another day than the router's. nil otherwise.
	Other  []Prompt
	Source string

	by   string    // the replica that answered, or failed to, by its URL; "": none
	room *[]uint32 // memory of Prompts' ids that Release returns; nil: not pooled
}

// rooms are memory for ids: a long prompt has hundreds of kilobytes of them, and to
// allocate and clear that takes longer than to copy the ids into it.
var rooms = sync.Pool{New: func() any { return new([]uint32) }}

// mostRoom bounds the ids for which memory is kept.
const mostRoom = 1 << 18

// Release returns the memory of the ids to its pool; they must not be read from
// then on. It need not be called.
func (r *Result) Release() {
	if r.room != nil && cap(*r.room) <= mostRoom {
		rooms.Put(r.room)
	}
	*r = Result{}
}

// bytes is the memory of the prompts, with that of the items' names.
func (r *Result) bytes() int {
	size := cap(r.Prompts) * int(unsafe.Sizeof(Prompt{}))
	for _, p := range r.Prompts {
		size += 4*cap(p.Tokens) + cap(p.MM)*int(unsafe.Sizeof(prefixhash.MM{}))
		for _, m := range p.MM {
			size += len(m.ID)
		}
	}
	return size
}

// The sources, as Result.Source and as metric labels.
const (
	FromBody      = "body"
	FromInProcess = "in_process"
	FromRender    = "render"
	FromTokenize  = "tokenize"
)

// ErrNone means that a request's token ids cannot be known.
var ErrNone = errors.New("tokens: not to be had")

// errServedAlone is ErrNone for a request whose ids no replica returns as it computes them.
var errServedAlone = fmt.Errorf("%w from a replica", ErrNone)

// Served is the served model id that a request names, the request's tenant ("" is none), and
// the replicas that its gateway allows (nil: all).
type Served struct {
	Model, Tenant string
	Subset        []string
	// Likely returns the address of the replica that the request will probably go to, "" if it
	// is not known; nil: it never is. It is called if a replica may get the request's text.
	Likely func() string
}

// Source finds the token ids of a request's prompts, within ctx's deadline.
type Source interface {
	Tokens(ctx context.Context, req *openai.Request, served Served) (Result, error)
}

// Body reads the ids that a body contains: /v1/completions with token prompts, and
// Generate.
type Body struct{}

// Tokens implements Source.
func (Body) Tokens(_ context.Context, req *openai.Request, _ Served) (Result, error) {
	if len(req.TokenPrompts) == 0 || req.Raw(openai.FieldTruncatePromptTokens) != nil || req.Raw(openai.FieldPromptEmbeds) != nil {
		return Result{}, ErrNone
	}
	prompts := make([]Prompt, len(req.TokenPrompts))
	for i, ids := range req.TokenPrompts {
		prompts[i].Tokens = ids
	}
	return Result{Prompts: prompts, Source: FromBody}, nil
}

// Chooser tries the sources in order: the body, this process if it is trusted, a
// replica.
type Chooser struct {
	Local  *Local  // nil: nothing in process
	Lanes  *Lanes  // of Local; nil: no limit
	Remote *Remote // nil: no request to a replica
}

// Tokens implements Source.
func (c *Chooser) Tokens(ctx context.Context, req *openai.Request, served Served) (Result, error) {
	if result, err := (Body{}).Tokens(ctx, req, served); err == nil {
		return result, nil
	}
	if req.Route == openai.Generate {
		return Result{}, ErrNone // its placeholders stand for media; nothing else renders it
	}
	if c.Local != nil {
		result, err := c.local(ctx, req, served)
		if err == nil || errors.Is(err, ErrBusy) || errors.Is(err, errServedAlone) || errors.Is(err, work.ErrEnded) {
			return result, err
		}
	}
	if c.Remote != nil {
		return c.Remote.Tokens(ctx, req, served)
	}
	return Result{}, ErrNone
}

// local computes the ids in this process, in the lane of the body's size.
func (c *Chooser) local(ctx context.Context, req *openai.Request, served Served) (Result, error) {
	if c.Lanes != nil {
		lane := c.Lanes.enter(len(req.Body()))
		if lane == nil {
			return Result{}, ErrBusy
		}
		defer lane.Give(1)
	}
	return c.Local.Tokens(ctx, req, served)
}
