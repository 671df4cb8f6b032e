package openai

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"

	"warmroute/render/internal/jsontext"
	"warmroute/render/work"
)

// Field is a field of the body that decides the prompt or its caching.
type Field uint8

// The fields that a Request keeps as spans of the body. No route has all of them.
const (
	FieldMessages Field = iota
	FieldSystem
	FieldInput
	FieldInstructions
	FieldPrompt
	FieldSuffix
	FieldPromptEmbeds
	FieldTools
	FieldToolChoice
	FieldChatTemplate
	FieldChatTemplateKwargs
	FieldReasoningEffort
	FieldReasoning
	FieldThinking
	FieldOutputConfig
	FieldDocuments
	FieldAddGenerationPrompt
	FieldContinueFinalMessage
	FieldAddSpecialTokens
	FieldTruncatePromptTokens
	FieldTruncationSide
	FieldTruncation
	FieldMMProcessorKwargs
	FieldMediaIOKwargs
	FieldKVTransferParams
	FieldPreviousResponseID
	FieldPreviousInputMessages
	FieldPromptLogprobs
	FieldLogprobs
	FieldTopLogprobs
	FieldEcho
	FieldMaxTokens
	FieldMaxCompletionTokens
	FieldMaxOutputTokens
	FieldUseBeamSearch
	FieldN
	FieldBestOf
	FieldBackground
	FieldStreamOptions
	FieldMinTokens
	FieldTokenIDs
	FieldSamplingParams
	FieldFeatures
	FieldContentParts
	FieldInputIDs
	FieldSessionParams
	numFields

	// The fields that Parse reads into Model, CacheSalt, Stream, ExtraKey and Adapter.
	fieldModel
	fieldCacheSalt
	fieldStream
	fieldExtraKey
	fieldLoRAPath
)

// lengths are the fields that say in how many tokens, answers and pieces a replica answers.
const lengths fields = 1<<fieldStream | 1<<FieldStreamOptions | 1<<FieldN | 1<<FieldBestOf | 1<<FieldMinTokens |
	1<<FieldMaxTokens | 1<<FieldMaxCompletionTokens | 1<<FieldMaxOutputTokens

// numLengths is the number of fields in lengths.
const numLengths = 8

// Span is a part of a body.
type Span struct{ From, To int }

// fields is a set of fields.
type fields uint64

// twice adds f to s and reports whether s had it before. A body may repeat a field until it
// is full, and reading each copy would be wasted work.
func (s *fields) twice(f Field) bool {
	before := *s
	*s |= 1 << f
	return before == *s
}

// fieldNames are the keys of the body, by Field.
var fieldNames = [numFields]string{
	"messages", "system", "input", "instructions", "prompt", "suffix", "prompt_embeds", "tools", "tool_choice",
	"chat_template", "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking", "output_config", "documents",
	"add_generation_prompt", "continue_final_message", "add_special_tokens", "truncate_prompt_tokens",
	"truncation_side", "truncation", "mm_processor_kwargs", "media_io_kwargs", "kv_transfer_params",
	"previous_response_id", "previous_input_messages", "prompt_logprobs", "logprobs", "top_logprobs", "echo",
	"max_tokens", "max_completion_tokens", "max_output_tokens", "use_beam_search", "n", "best_of", "background",
	"stream_options", "min_tokens", "token_ids", "sampling_params", "features", "content_parts", "input_ids",
	"session_params",
}

// String returns the field's key in the body.
func (f Field) String() string { return fieldNames[f] }

var fieldOf = func() map[string]Field {
	m := map[string]Field{"model": fieldModel, "cache_salt": fieldCacheSalt, "stream": fieldStream, "extra_key": fieldExtraKey, "lora_path": fieldLoRAPath}
	for i, name := range fieldNames {
		m[name] = Field(i)
	}
	return m
}()

// Request is the part of one body that a router needs.
type Request struct {
	Route  Route
	Model  string // the model id that the client wrote, "" if none
	Stream bool
	// CacheSalt is nil if the body has none (or null).
	CacheSalt *string
	// ExtraKey is SGLang's extra_key, the name of a namespace of its cache; "" if the body
	// has none, or no single one.
	ExtraKey string
	// Adapter is SGLang's lora_path, the name of an adapter; "" if the body has none. Of a list,
	// which may name another adapter for each prompt, it is the JSON.
	Adapter string
	// MaxTokens is the most tokens that one answer may have; 0 if the body sets no limit.
	// For /v1/completions it is then vLLM's default.
	MaxTokens int
	// TokenPrompts and TextPrompts hold the prompts of /v1/completions; one of them is
	// set. Generate has one of TokenPrompts, or none if its placeholders stand for media.
	TokenPrompts [][]uint32
	TextPrompts  []string
	// Multimodal: a content part is not text (or the prompt is embeddings).
	Multimodal bool
	// NoCacheRead: vLLM reads no cache for this request, because it must
	// compute the prompt's logprobs.
	NoCacheRead bool
	// Repeated: vLLM may look the prompt up several times, for several answers or beams.
	Repeated bool
	// Answers is the number of answers, or beams, that a replica generates for each prompt.
	Answers int

	raw    [numFields][]byte
	given  []uint32 // a chat's input_ids, nil: it has none
	body   []byte
	listed bool             // the route's messages are an array, in known and rest
	known  []*known         // the array's strides that the Reader remembers
	rest   jsontext.Stretch // the messages behind known
	// nullSwitch: a field that vLLM requires to be a boolean is null.
	nullSwitch  bool
	ownTransfer bool

	lengths    [numLengths]Span
	numLengths int
}

// Raw returns the span of the field's value in the body, nil if the field is absent or
// null.
func (r *Request) Raw(f Field) []byte { return r.raw[f] }

// Lengths returns the body's members that say in how many tokens, answers and pieces a
// replica answers (stream, n, max_tokens and others), by their order in the body: from the
// key's opening quote to the end of the value.
func (r *Request) Lengths() []Span { return r.lengths[:r.numLengths] }

// OwnTransfer reports whether the body has kv_transfer_params, null included.
func (r *Request) OwnTransfer() bool { return r.ownTransfer }

// NullSwitch reports whether a field that vLLM requires to be a boolean is null.
func (r *Request) NullSwitch() bool { return r.nullSwitch }

// isSwitch reports whether vLLM requires the field to be a boolean.
func (f Field) isSwitch() bool {
	return f == FieldAddGenerationPrompt || f == FieldContinueFinalMessage || f == FieldAddSpecialTokens
}

// Body returns the whole body, borrowed like every span.
func (r *Request) Body() []byte { return r.body }

var scanners = sync.Pool{New: func() any { return new(scanner) }}

// Parse reads body, which it neither changes nor copies: the Request's spans
// point into it. The error is always a *[Error].
func Parse(route Route, body []byte) (*Request, error) { return (*Reader)(nil).Parse(route, body) }

// Parse is the package's Parse, but if the messages of a body begin with an earlier body's
// it reads only the new part.
func (m *Reader) Parse(route Route, body []byte) (*Request, error) {
	return m.ParseWithin(nil, route, body)
}

// ParseWithin is Parse that charges a budget; nil: none. If the budget's context ends, the
// error wraps [work.ErrEnded].
func (m *Reader) ParseWithin(b *work.Budget, route Route, body []byte) (*Request, error) {
	s := scanners.Get().(*scanner)
	*s = scanner{b: body, budget: b, keys: s.keys[:0], structure: s.structure}
	if b == nil {
		s.budget = &s.unlimited
	}
	r := &Request{Route: route, body: body}
	why, err := r.within(s, m)
	s.b, s.budget = nil, nil
	s.structure.reset()
	scanners.Put(s)
	switch {
	case errors.Is(err, work.ErrEnded):
		return nil, err
	case err != nil:
		why = TooWide
	}
	if why != "" {
		return nil, errorOf[why]
	}
	return r, nil
}

// within calls parse and returns the budget's error, if any.
func (r *Request) within(s *scanner, m *Reader) (why Reason, err error) {
	defer work.Catch(&err)
	why = r.parse(s, m)
	s.charge()
	return why, nil
}

// bom may begin a body: Python decodes the body as utf-8-sig.
const bom = "\xef\xbb\xbf"

func (r *Request) parse(s *scanner, m *Reader) Reason {
	if len(s.b) >= len(bom) && string(s.b[:len(bom)]) == bom {
		s.i = len(bom)
	}
	if s.peek() != '{' {
		if why := s.value(); why != "" {
			return why
		}
		if s.peek() != 0 || s.i < len(s.b) {
			return UnreadableJSON
		}
		return NotObject
	}
	var model, salt, extra, adapter []byte
	var seen fields
	why := s.object(func(key []byte) Reason {
		f, ok := fieldOf[string(key)]
		if !ok {
			return s.value()
		}
		if seen.twice(f) {
			return RepeatedField
		}
		if lengths&(1<<f) != 0 {
			return r.length(s, f)
		}
		switch f {
		case fieldModel:
			return s.span(&model)
		case fieldCacheSalt:
			return s.span(&salt)
		case fieldExtraKey:
			return s.span(&extra)
		case fieldLoRAPath:
			return s.span(&adapter)
		}
		if f == r.Route.ids() && s.peek() == '[' && r.tokenPrompt(s, f) {
			return ""
		}
		s.watch = f == FieldMessages || f == FieldSystem || f == FieldInput && r.Route == Responses
		if f == r.Route.list() && s.peek() == '[' {
			start := s.i
			why := m.list(s, r)
			s.watch = false
			r.raw[f] = s.b[start:s.i:s.i]
			return why
		}
		why := s.span(&r.raw[f])
		s.watch = false
		r.ownTransfer = r.ownTransfer || f == FieldKVTransferParams
		r.nullSwitch = r.nullSwitch || f.isSwitch() && r.raw[f] == nil
		return why
	})
	if why != "" {
		return why
	}
	if s.space(); s.i < len(s.b) {
		return UnreadableJSON
	}
	if len(extra) > 0 && extra[0] == '"' {
		r.ExtraKey = stringOf(extra)
	}
	switch {
	case adapter == nil:
	case adapter[0] == '"':
		r.Adapter = stringOf(adapter)
	default:
		r.Adapter = string(adapter)
	}
	if r.Route != Completions {
		r.raw[FieldPromptEmbeds] = nil // vLLM does not know it there
	}
	for _, f := range [...]Field{FieldMMProcessorKwargs, FieldMediaIOKwargs} {
		if v := r.raw[f]; r.Route == Messages || len(v) > 0 && v[0] == '{' && jsontext.Space(v, 1) == len(v)-1 {
			r.raw[f] = nil // unknown to vLLM there, or empty: it sets nothing
		}
	}
	r.Multimodal = s.media || r.raw[FieldPromptEmbeds] != nil
	return r.finish(s, model, salt)
}

// length reads one of the fields in lengths, and keeps its place.
func (r *Request) length(s *scanner, f Field) (why Reason) {
	from := s.key
	if f == fieldStream {
		r.Stream = s.peek() == 't'
		why = s.value()
	} else {
		why = s.span(&r.raw[f])
	}
	r.lengths[r.numLengths] = Span{from, s.i}
	r.numLengths++
	return why
}

// span steps over a value and sets to to its span; null leaves to as it is.
func (s *scanner) span(to *[]byte) Reason {
	start := s.i
	if why := s.value(); why != "" {
		return why
	}
	if v := s.b[start:s.i:s.i]; string(v) != "null" {
		*to = v
	}
	return ""
}

// defaultMaxTokens is vLLM's max_tokens of /v1/completions. It takes no prompt that leaves less room.
const defaultMaxTokens = 16

// finish reads the values of spans, after the scanner has passed the whole body.
func (r *Request) finish(s *scanner, model, salt []byte) Reason {
	if model != nil {
		if model[0] != '"' {
			return BadModel
		}
		r.Model = stringOf(model)
	}
	if salt != nil {
		if salt[0] != '"' || len(salt) == 2 {
			return BadCacheSalt
		}
		text := stringOf(salt)
		r.CacheSalt = &text
	}
	limit := r.raw[FieldMaxTokens]
	switch r.Route {
	case Completions:
		r.MaxTokens = defaultMaxTokens
	case Chat:
		if v := r.raw[FieldMaxCompletionTokens]; v != nil {
			limit = v
		}
	case Responses:
		limit = r.raw[FieldMaxOutputTokens]
	}
	if limit != nil {
		r.MaxTokens = countOf(limit)
	}
	r.NoCacheRead, r.Repeated, r.Answers = r.noCacheRead(), r.repeated(), r.answers()
	if r.Route == Generate {
		return r.generate(s)
	}
	return r.prompt(s)
}

// countOf reads a number of tokens or answers as vLLM does: 16.0, 1.6e1 and "16" are 16. What is no such number is 0.
func countOf(v []byte) int {
	n, err := strconv.ParseFloat(strings.Trim(string(v), `"`), 64)
	if err != nil || n != math.Trunc(n) || n < 0 {
		return 0
	}
	return int(min(n, math.MaxInt32))
}

// On reports whether vLLM reads a field as true: it takes 1, "yes" and the like, too.
func (r *Request) On(f Field) bool {
	switch strings.ToLower(strings.Trim(string(r.raw[f]), `"`)) {
	case "": // most requests have no such field
		return false
	case "true", "t", "yes", "y", "on":
		return true
	}
	return countOf(r.raw[f]) == 1
}

// noCacheRead follows SamplingParams.skip_reading_prefix_cache (vLLM 0.21, 0.32): true
// if prompt_logprobs is set, even to 0. With echo, logprobs (completions) or top_logprobs,
// whose default is 0 (chat), stand in for it.
func (r *Request) noCacheRead() bool {
	switch r.Route {
	case Completions, Chat:
	default:
		return false
	}
	if r.raw[FieldPromptLogprobs] != nil {
		return true
	}
	if !r.On(FieldEcho) {
		return false
	}
	return r.Route == Chat || r.raw[FieldLogprobs] != nil
}

// repeated reports whether n or best_of is another number than 1, or beams are searched.
func (r *Request) repeated() bool {
	switch r.Route {
	case Completions, Chat:
	default:
		return false
	}
	for _, f := range [...]Field{FieldN, FieldBestOf} {
		if v := r.raw[f]; v != nil && countOf(v) != 1 {
			return true
		}
	}
	v := r.raw[FieldUseBeamSearch]
	return v != nil && string(v) != "false"
}

// answers reads n and best_of.
func (r *Request) answers() int {
	most := 1
	if r.Route != Completions && r.Route != Chat {
		return most
	}
	for _, f := range [...]Field{FieldN, FieldBestOf} {
		if v := r.raw[f]; v != nil {
			most = max(most, countOf(v))
		}
	}
	return most
}

// prompt checks that the body has the route's prompt, in a type that vLLM takes.
func (r *Request) prompt(s *scanner) Reason {
	switch r.Route {
	case Chat, Messages:
		if r.Route == Chat {
			r.readInputIDs(s)
		}
		return wants(r.raw[FieldMessages], "[")
	case Responses:
		return wants(r.raw[FieldInput], `["`)
	}
	v := r.raw[FieldPrompt]
	if v == nil && r.raw[FieldPromptEmbeds] != nil {
		return ""
	}
	if why := wants(v, `["`); why != "" {
		return why
	}
	return r.completions(s, v)
}

// wants checks the first byte of a value.
func wants(v []byte, first string) Reason {
	if v == nil {
		return NoPrompt
	}
	for i := range len(first) {
		if v[0] == first[i] {
			return ""
		}
	}
	return BadPrompt
}

// stringOf returns the text of a scanned string value.
func stringOf(v []byte) string {
	raw := v[1 : len(v)-1]
	for _, c := range raw {
		if c == '\\' {
			return string(jsontext.AppendText(nil, raw, nil))
		}
	}
	return string(raw)
}
