package vllmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// generation is one request of any of the four routes.
type generation struct {
	id        string
	model     string // as the answer names it
	lora      *adapter
	prompts   []prompt
	n         int // answers to each prompt
	maxTokens int // 0: not given
	salt      string
	noRead    bool
	report    bool
	stream    bool
	transfer  transfer
	dialect   dialect
}

// parser reads a route's body.
type parser func(*http.Request) (*generation, error)

// common are the fields that all four routes share.
type common struct {
	Model  string  `json:"model"`
	Stream bool    `json:"stream"`
	Salt   *string `json:"cache_salt"`
	XArgs  struct {
		ReportMode string `json:"kv_cache_report_mode"`
	} `json:"vllm_xargs"`
	Transfer json.RawMessage `json:"kv_transfer_params"`
}

// start makes the request's generation from its common fields.
func (s *Sim) start(c common, idPrefix string) (*generation, error) {
	lora, err := s.lora(c.Model)
	if err != nil {
		return nil, err
	}
	g := &generation{model: s.o.Model, lora: lora, n: 1, stream: c.Stream}
	if lora != nil {
		g.model = lora.Name
	}
	g.report = s.o.Version == V032 && c.XArgs.ReportMode == "full"
	if c.Salt != nil {
		if *c.Salt == "" {
			return nil, badRequest("cache_salt must be a non-empty string if provided")
		}
		g.salt = *c.Salt
	}
	if g.transfer, err = readTransfer(c.Transfer); err != nil {
		return nil, err
	}
	g.id = fmt.Sprintf("%s%016x", idPrefix, uint64(s.o.Seed)<<32+s.answered.Add(1))
	return g, nil
}

// streamOptions report whether a stream ends with a chunk that has the usage.
type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

func (s *Sim) parseChat(r *http.Request) (*generation, error) {
	var req struct {
		common
		chatRequest
		MaxTokens           *int            `json:"max_tokens"`
		MaxCompletionTokens *int            `json:"max_completion_tokens"`
		N                   *int            `json:"n"`
		StreamOptions       streamOptions   `json:"stream_options"`
		PromptLogprobs      json.RawMessage `json:"prompt_logprobs"`
	}
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	g, err := s.start(req.common, "chatcmpl-")
	if err != nil {
		return nil, err
	}
	p, err := s.chatPrompt(&req.chatRequest)
	if err != nil {
		return nil, err
	}
	g.prompts = []prompt{p}
	g.noRead = given(req.PromptLogprobs)
	g.dialect = &chatDialect{completionsBase{g: g, s: s, includeUsage: req.StreamOptions.IncludeUsage}}
	if req.MaxCompletionTokens != nil {
		req.MaxTokens = req.MaxCompletionTokens
	}
	return g, g.limits(req.MaxTokens, req.N)
}

func (s *Sim) parseCompletions(r *http.Request) (*generation, error) {
	var req struct {
		common
		Prompt         json.RawMessage `json:"prompt"`
		MaxTokens      *int            `json:"max_tokens"`
		N              *int            `json:"n"`
		Echo           bool            `json:"echo"`
		Logprobs       json.RawMessage `json:"logprobs"`
		PromptLogprobs json.RawMessage `json:"prompt_logprobs"`
		StreamOptions  streamOptions   `json:"stream_options"`
	}
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	g, err := s.start(req.common, "cmpl-")
	if err != nil {
		return nil, err
	}
	if g.prompts, err = s.completionPrompts(req.Prompt); err != nil {
		return nil, err
	}
	// prompt_logprobs, and echo with logprobs, need every prompt token's logits.
	g.noRead = given(req.PromptLogprobs) || req.Echo && given(req.Logprobs)
	g.dialect = &completionDialect{completionsBase{g: g, s: s, includeUsage: req.StreamOptions.IncludeUsage}, req.Echo}
	return g, g.limits(req.MaxTokens, req.N)
}

// completionPrompts reads a string, a list of strings, token ids, or a list of
// lists of token ids.
func (s *Sim) completionPrompts(raw json.RawMessage) ([]prompt, error) {
	var text string
	var texts []string
	var ids []uint32
	var lists [][]uint32
	var out []prompt
	switch {
	case !given(raw):
		return nil, badRequest("prompt is required")
	case json.Unmarshal(raw, &text) == nil:
		out = append(out, prompt{tokens: encode(nil, text)})
	case json.Unmarshal(raw, &texts) == nil:
		for _, t := range texts {
			out = append(out, prompt{tokens: encode(nil, t)})
		}
	case json.Unmarshal(raw, &ids) == nil:
		out = append(out, prompt{tokens: ids})
	case json.Unmarshal(raw, &lists) == nil:
		for _, l := range lists {
			out = append(out, prompt{tokens: l})
		}
	default:
		return nil, badRequest("prompt must be a string, a list of strings, token ids or a list of lists of token ids")
	}
	if len(out) == 0 {
		return nil, badRequest("prompt must not be empty")
	}
	return out, nil
}

func (s *Sim) parseResponses(r *http.Request) (*generation, error) {
	var req struct {
		common
		Input        json.RawMessage `json:"input"`
		Instructions string          `json:"instructions"`
		Tools        []responsesTool `json:"tools"`
		Reasoning    struct {
			Effort string `json:"effort"`
		} `json:"reasoning"`
		MaxOutputTokens    *int   `json:"max_output_tokens"`
		PreviousResponseID string `json:"previous_response_id"`
	}
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	if req.PreviousResponseID != "" { // the simulator stores nothing, like vLLM without VLLM_ENABLE_RESPONSES_API_STORE
		return nil, &apiError{http.StatusNotFound, "NotFoundError", "", "the response " + strconv.Quote(req.PreviousResponseID) + " is not stored"}
	}
	g, err := s.start(req.common, "resp_")
	if err != nil {
		return nil, err
	}
	chat := chatRequest{Tools: convert(req.Tools, responsesTool.tool), ReasoningEffort: req.Reasoning.Effort}
	if req.Instructions != "" {
		chat.Messages = append(chat.Messages, message{Role: "system", Content: quote(req.Instructions)})
	}
	if err := chat.input(req.Input); err != nil {
		return nil, err
	}
	p, err := s.chatPrompt(&chat)
	if err != nil {
		return nil, err
	}
	g.prompts = []prompt{p}
	g.dialect = &responsesDialect{g: g, s: s}
	return g, g.limits(req.MaxOutputTokens, nil)
}

func (s *Sim) parseMessages(r *http.Request) (*generation, error) {
	var req struct {
		common
		System    json.RawMessage `json:"system"`
		Messages  []message       `json:"messages"`
		Tools     []messagesTool  `json:"tools"`
		MaxTokens *int            `json:"max_tokens"`
	}
	if err := readJSON(r, &req); err != nil {
		return nil, err
	}
	if req.MaxTokens == nil {
		return nil, badRequest("max_tokens is required")
	}
	g, err := s.start(req.common, "chatcmpl-")
	if err != nil {
		return nil, err
	}
	chat := chatRequest{Tools: convert(req.Tools, messagesTool.tool)}
	if err := chat.system(req.System); err != nil {
		return nil, err
	}
	for _, m := range req.Messages {
		if err := chat.blocks(m); err != nil {
			return nil, err
		}
	}
	p, err := s.chatPrompt(&chat)
	if err != nil {
		return nil, err
	}
	g.prompts = []prompt{p}
	g.dialect = &messagesDialect{g: g, s: s}
	return g, g.limits(req.MaxTokens, nil)
}

// given reports whether a JSON field is present and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // a string cannot fail
	return b
}

// maxAnswers bounds n. vLLM's limit is 16384, but its hardware is larger.
const maxAnswers = 128

// limits checks and sets the length and number of the answers.
func (g *generation) limits(maxTokens, n *int) error {
	if maxTokens != nil {
		if *maxTokens < 1 {
			return badRequest("max_tokens must be at least 1, got %d.", *maxTokens)
		}
		g.maxTokens = *maxTokens
	}
	if n != nil {
		if *n < 1 || *n > maxAnswers {
			return badRequest("n must be between 1 and %d, got %d.", maxAnswers, *n)
		}
		g.n = *n
	}
	return nil
}

// sequences makes the sequences for the engines: n per prompt, in the prompts' order.
func (s *Sim) sequences(g *generation) ([]*sequence, chan token, error) {
	var seqs []*sequence
	room := 0
	for _, p := range g.prompts {
		left := s.o.MaxModelLen - len(p.tokens)
		switch {
		case len(p.tokens) == 0:
			return nil, nil, badRequest("the prompt is empty")
		case left < 1 || g.maxTokens > left:
			return nil, nil, badRequest("This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens.",
				s.o.MaxModelLen, g.maxTokens, len(p.tokens))
		}
		most := g.maxTokens
		if most == 0 {
			most = min(s.o.OutputTokens, left)
		}
		for range g.n {
			q := &sequence{
				prompt: len(p.tokens), tokens: append(make([]uint32, 0, len(p.tokens)+most), p.tokens...), images: p.images,
				maxTokens: most, lora: g.lora, salt: g.salt, noRead: g.noRead, report: g.report, index: len(seqs),
			}
			q.next = s.answer(p.tokens, len(seqs))
			seqs = append(seqs, q)
			room += most + 1
		}
	}
	out := make(chan token, room)
	for _, q := range seqs {
		q.out = out
	}
	return seqs, out, nil
}

// answer returns the function that generates the answer to a prompt; further answers to
// the same prompt differ.
func (s *Sim) answer(prompt []uint32, index int) func(int) uint32 {
	if s.o.Generate != nil {
		return func(n int) uint32 { return s.o.Generate(prompt, n) }
	}
	sp := newSpeech(s.o.Seed+int64(index), prompt)
	return func(int) uint32 { return sp.next() }
}

// Headers that vLLM reads: the data-parallel rank to use, and a name that 0.32 puts into
// the events of a request.
const (
	rankHeader    = "X-data-parallel-rank"
	sessionHeader = "X-Session-ID"
)

// submit hands sequences to the engines: all to the rank in the header, or else each to
// the least loaded rank.
func (s *Sim) submit(r *http.Request, seqs []*sequence) (engines []*engine, err error) {
	loads := make([]int, len(s.ranks))
	for i, k := range s.ranks {
		loads[i] = k.load()
	}
	pinned := -1
	if v, err := strconv.Atoi(r.Header.Get(rankHeader)); err == nil { // vLLM ignores a value that is no number
		if v < 0 || v >= len(s.ranks) {
			return nil, badRequest("data_parallel_rank %d is out of range [0, %d).", v, len(s.ranks))
		}
		pinned = v
	}
	groups := make([][]*sequence, len(s.ranks))
	for _, q := range seqs {
		q.session = r.Header.Get(sessionHeader)
		to := pinned
		if to < 0 {
			to = s.leastLoaded(loads)
		}
		loads[to] += 4
		groups[to] = append(groups[to], q)
		engines = append(engines, s.ranks[to].engine)
	}
	for i, g := range groups {
		if len(g) > 0 {
			s.ranks[i].submit(g...)
		}
	}
	return engines, nil
}

func (s *Sim) leastLoaded(loads []int) int {
	first := int(s.turn.Add(1) % uint64(len(loads)))
	best := first
	for i := range loads {
		if r := (first + i) % len(loads); loads[r] < loads[best] {
			best = r
		}
	}
	return best
}
