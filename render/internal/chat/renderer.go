package chat

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"warmroute/render/internal/jinja"
	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// Formats of message content, vLLM's --chat-template-content-format.
const (
	FormatAuto   = "auto"
	FormatString = "string"
	FormatOpenAI = "openai"
)

// Options are how the server renders: the model's files and the flags it was
// started with.
type Options struct {
	Model Model
	// Template is the source of the chat template: the server's
	// --chat-template if it has one, else the tokenizer's. ToolTemplate is the
	// one used when the request has tools ("tool_use" of a tokenizer with
	// several); empty means Template.
	Template, ToolTemplate string
	// ContentFormat is one of the formats; empty means auto.
	ContentFormat string
	// SpecialTokens are the tokenizer's named tokens (bos_token, eos_token, …)
	// as a template reads them.
	SpecialTokens map[string]string
	// DefaultKwargs is --default-chat-template-kwargs; nil: none.
	DefaultKwargs *pyvalue.Dict
	// ExcludeToolsWhenToolChoiceNone is the flag of that name.
	ExcludeToolsWhenToolChoiceNone bool
	// DisabledThinkingEffort is what /v1/messages' thinking.type "disabled"
	// means: an effort, or empty for vLLM's own probe of the template.
	DisabledThinkingEffort string
	// ResponsesToolFields are the fields of the openai package's FunctionTool in
	// its order: up to 0.21, /v1/responses shows the template a dump of that
	// class. Empty: requests that need it are refused.
	ResponsesToolFields []string
	// Transformers is the version of the server's transformers package, which
	// prepares messages too: from 5.23 on it drops a message's null fields and
	// copies its reasoning to thinking, up to 5.19 it does not. Empty: not
	// known, and both must give the same text.
	Transformers string
	// Version is the replica's /version; empty means unknown.
	Version string
	// Location is the replicas' time zone, for strftime_now. nil means UTC.
	Location *time.Location
	// StartDate is the servers' VLLM_SYSTEM_START_DATE: the date in harmony's system
	// message. Empty: the date by their clock.
	StartDate string
	// SystemInstructions is the servers' VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS:
	// harmony's instructions stand in the system message.
	SystemInstructions bool
	// Limits bound a template; the zero value means jinja's defaults.
	Limits jinja.Options
	// Work is charged for New, which compiles the template and tries it; nil: nothing is.
	Work *work.Budget
}

// merging reports whether system messages inside /v1/messages are moved to the
// front, which vLLM determines by rendering the template.
type merging uint8

const (
	mergeNo merging = iota
	mergeYes
	mergeUnknown
)

// Renderer renders one model's requests as one server would.
type Renderer struct {
	o              Options
	coded          bool
	keepRaw        bool  // messages are kept as the client sent them, too
	sourceOnly     bool  // and are not normalised
	tellsDay       bool  // chats depend on the servers' clock
	coder          coder // nil: the model has a template, or code that is not written here
	refused        error // of every chat: a template needs what is not rendered here
	plain, tooled  *template
	dialects       []dialect
	mergeInline    merging
	disabledEffort string // "" when it is unknown
}

// template is a compiled chat template with properties of its source.
type template struct {
	*jinja.Template
	source         string
	loops, loops21 bool // it loops over content, by the newer and the older rules
	developer      bool // it handles the developer role
	thinking       bool // it may read a message's thinking
}

// New compiles the template and probes it as vLLM does when it starts. A
// model that vLLM renders in code needs no template: every chat is then refused
// with RenderedInCode, and text completions still work.
func New(o Options) (r *Renderer, err error) {
	defer work.Catch(&err)
	b := work.Or(o.Work)
	o.Work, o.Limits.Work = nil, b
	switch o.ContentFormat {
	case "":
		o.ContentFormat = FormatAuto
	case FormatAuto, FormatString, FormatOpenAI:
	default:
		return nil, fmt.Errorf("chat: content format %q is none of auto, string, openai", o.ContentFormat)
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	r = &Renderer{o: o, dialects: dialectsOf(o.Version)}
	r.o.Limits.Work = nil
	r.coder, r.coded = newCoder(r)
	if r.coded || o.Template == "" {
		return r, nil
	}
	if r.plain, err = compile(o.Template, o.Limits); err != nil {
		return r.without("chat template", err)
	}
	r.tooled = r.plain
	if o.ToolTemplate != "" && o.ToolTemplate != o.Template {
		if r.tooled, err = compile(o.ToolTemplate, o.Limits); err != nil {
			return r.without("chat template for tools", err)
		}
	}
	for _, t := range []*template{r.plain, r.tooled} {
		r.tellsDay = r.tellsDay || strings.Contains(t.source, "strftime_now")
		t.thinking = t.thinking || r.printsThinking(b, t)
	}
	r.mergeInline = r.probeMerge(b)
	r.disabledEffort = o.DisabledThinkingEffort
	if r.disabledEffort == "" {
		r.disabledEffort = r.probeEffort(b)
	}
	return r, b.Err()
}

// without is a renderer that refuses every chat where a template needs what jinja
// does not render; any other error of a template is returned.
func (r *Renderer) without(which string, err error) (*Renderer, error) {
	if jinja.Refused(err) == "" {
		return nil, fmt.Errorf("%s: %w", which, err)
	}
	r.plain, r.tooled, r.refused = nil, nil, templateError(err)
	return r, nil
}

// readsThinking finds a template that reads message.thinking, which some versions
// of transformers fill in and others do not. One that prints whole messages is
// found by trying it.
var readsThinking = regexp.MustCompile(`\.thinking\b|['"]thinking['"]`)

func compile(source string, o jinja.Options) (*template, error) {
	t, err := jinja.Compile(source, o)
	if err != nil {
		return nil, err
	}
	return &template{
		Template: t, source: source,
		loops: t.OpenAIContent(false), loops21: t.OpenAIContent(true),
		developer: strings.Contains(source, `"developer"`) || strings.Contains(source, `'developer'`),
		thinking:  readsThinking.MatchString(source),
	}, nil
}

func (r *Renderer) template(tools bool) *template {
	if tools {
		return r.tooled
	}
	return r.plain
}

// openaiFormat resolves the content format for a request with or without tools.
func (r *Renderer) openaiFormat(tools bool, d dialect) bool {
	switch t := r.template(tools); {
	case r.o.ContentFormat != FormatAuto:
		return r.o.ContentFormat == FormatOpenAI
	case d.macroContent:
		return t.loops
	default:
		return t.loops21
	}
}

// probeMerge does what _detect_merge_inline_system does: it renders a
// conversation with a second system message, in a bare environment without the
// special tokens.
func (r *Renderer) probeMerge(b *work.Budget) merging {
	for _, t := range []*template{r.plain, r.tooled} {
		if strings.Contains(t.source, "strftime_now") {
			return mergeUnknown // undefined there, defined here
		}
		messages := pyvalue.NewList()
		for _, role := range []string{"system", "user", "system", "user"} {
			messages.Items = append(messages.Items, dict("role", role, "content", "t"))
		}
		vars := dict("messages", messages, "add_generation_prompt", false)
		if _, err := t.Render(nil, vars, jinja.Env{Now: r.clock(time.Now()), Work: b}); err != nil ||
			strings.Contains(t.source, "endgeneration") {
			return mergeYes
		}
	}
	return mergeNo
}

// probeEffort does what _probe_disabled_thinking_effort does: "none" when the
// template renders it differently from every other effort. Where vLLM's probe gives
// "low", its own /render does not (0.32), so nothing could verify the text, and the
// effort is unknown.
func (r *Renderer) probeEffort(b *work.Budget) string {
	now := time.Now()
	render := func(effort string) ([]byte, error) {
		p := &prompt{defaults: true, generation: true, effort: effort}
		r.begin(b, p, dialect32, true)
		p.openai = r.openaiFormat(false, dialect32)
		if err := p.add(dict("role", "user", "content", "Hi")); err != nil {
			return nil, err
		}
		return r.text(nil, p, now, false)
	}
	none, err := render("none")
	if err != nil {
		return ""
	}
	for _, effort := range []string{"low", "medium", "high", "xhigh", "max"} {
		if text, err := render(effort); err == nil && bytes.Equal(text, none) {
			return ""
		}
	}
	return "none"
}

// printsThinking renders to find whether a message's thinking is in the prompt, at
// any position of the message.
func (r *Renderer) printsThinking(b *work.Budget, t *template) bool {
	env := jinja.Env{Now: r.clock(time.Unix(0, 0)), Work: b}
	render := func(roles []string, modern bool) []byte {
		messages := pyvalue.NewList()
		for _, role := range roles {
			m := dict("role", role, "content", "t")
			if role == "assistant" {
				m.Set("reasoning", "t")
				m.Set("reasoning_content", "t")
			}
			messages.Items = append(messages.Items, m)
		}
		if modern {
			modernise(b, messages)
		}
		vars := dict("messages", messages, "tools", nil, "documents", nil, "add_generation_prompt", false)
		text, err := t.Render(nil, vars, env)
		if err != nil {
			return nil
		}
		return text
	}
	for _, roles := range [][]string{{"user", "assistant"}, {"assistant"}, {"user", "assistant", "user"}} {
		if !bytes.Equal(render(roles, true), render(roles, false)) {
			return true
		}
	}
	return false
}

// nearMidnight is how far a replica's clock may be from the router's: within it of
// midnight, a prompt may have either day.
const nearMidnight = 5 * time.Minute

// Moments are the times a chat may have been rendered at, as far as that makes a
// difference, the likeliest first: one, or two around the servers' midnight where
// prompts contain the day.
func (r *Renderer) Moments(now time.Time) []time.Time {
	now = now.In(r.o.Location)
	if !r.tellsDay {
		return []time.Time{now}
	}
	for _, other := range []time.Time{now.Add(-nearMidnight), now.Add(nearMidnight)} {
		if other.Day() != now.Day() {
			return []time.Time{now, other}
		}
	}
	return []time.Time{now}
}

func (r *Renderer) clock(now time.Time) func() time.Time {
	now = now.In(r.o.Location)
	return func() time.Time { return now }
}

// Rendered is a prompt's text.
type Rendered struct {
	// Text is dst with the prompt appended (nil for /v1/completions).
	Text []byte
	// Pieces, if there are any, are the parts of the text beyond dst, each encoded by
	// itself; their offsets count from there.
	Pieces []tokenizer.Piece
	// TextPrompts are the prompts of /v1/completions.
	TextPrompts []string
	// AddSpecialTokens: the tokenizer adds BOS and the like around the text.
	AddSpecialTokens bool
	// Truncates: vLLM cuts a prompt that is longer than the model's context
	// instead of refusing it.
	Truncates bool
	// Features is what the request uses.
	Features openai.Features
}

// Render appends to dst the text vLLM would tokenize for req. now is the
// server's time, for templates that print the date. The work is charged to b (nil: to
// nothing). The error is a [*NotInProcess], or one of work where b has ended.
func (r *Renderer) Render(b *work.Budget, dst []byte, req *openai.Request, now time.Time) (out Rendered, err error) {
	defer work.Catch(&err)
	return r.within(dst, &request{req, work.Or(b)}, now)
}

func (r *Renderer) within(dst []byte, req *request, now time.Time) (Rendered, error) {
	out := Rendered{Features: req.Route.Feature()}
	if r.coder != nil {
		out.Text, out.TextPrompts, out.Truncates = dst, req.TextPrompts, truncates(req)
		return out, r.coder.write(&out, req, now.In(r.o.Location))
	}
	if err := common(req); err != nil {
		return out, err
	}
	if req.Route == openai.Completions {
		var err error
		out.TextPrompts = req.TextPrompts
		out.AddSpecialTokens, err = completion(req)
		return out, err
	}
	switch {
	case r.coded:
		return out, refuse(RenderedInCode)
	case r.refused != nil:
		return out, r.refused
	case r.plain == nil:
		return out, refuse(NoTemplate)
	}
	base := len(dst)
	for i, d := range r.dialects {
		text, p, err := r.render(dst, req, d, now)
		if err != nil {
			return out, err
		}
		if i > 0 && (!bytes.Equal(text[base:], out.Text[base:]) || p.special != out.AddSpecialTokens) {
			return out, refuse(VersionDiffers)
		}
		out.Text, out.AddSpecialTokens = text, p.special
		out.Features |= p.features
		if len(r.dialects) > i+1 {
			req.work.Make(len(dst))
			dst = bytes.Clone(dst)
		}
	}
	out.Truncates = truncates(req)
	return out, nil
}

func truncates(req *request) bool {
	return req.Route == openai.Responses && string(req.Raw(openai.FieldTruncation)) == `"auto"`
}

func (r *Renderer) render(dst []byte, req *request, d dialect, now time.Time) ([]byte, *prompt, error) {
	p, err := r.build(req, d)
	if err != nil {
		return nil, nil, err
	}
	base := len(dst)
	modern, known := modernTransformers(r.o.Transformers)
	text, err := r.text(dst, p, now, modern)
	if err != nil || known || !p.nulls && !(p.reasoning && r.template(p.tools != nil).thinking) {
		return text, p, err
	}
	again, err := r.build(req, d) // rendering changed the messages
	if err != nil {
		return nil, nil, err
	}
	other, err := r.text(nil, again, now, !modern)
	if err == nil && !bytes.Equal(other, text[base:]) {
		err = refuse(TransformersDiffers)
	}
	return text, p, err
}

func (r *Renderer) build(req *request, d dialect) (*prompt, error) {
	var p *prompt
	var err error
	switch req.Route {
	case openai.Chat:
		p, err = r.chat(req, d)
	case openai.Responses:
		p, err = r.responses(req, d)
	case openai.Messages:
		p, err = r.anthropic(req, d)
	default:
		err = refuse(UnknownShape)
	}
	if err == nil && (p.source == nil || len(p.source.Items) == 0 && !r.coded) {
		err = refuse(Rejected)
	}
	if err == nil && !r.sourceOnly {
		err = p.addAll(p.source)
	}
	return p, err
}

// text runs the template.
func (r *Renderer) text(dst []byte, p *prompt, now time.Time, modern bool) ([]byte, error) {
	t := r.template(p.tools != nil)
	if p.developer && p.d.developerFallback && !t.developer {
		p.developersToSystem()
	}
	if modern {
		modernise(p.work, p.messages)
	}
	vars, err := p.variables(&r.o)
	if err != nil {
		return nil, err
	}
	env := jinja.Env{Now: r.clock(now), Work: p.work}
	if p.continues {
		p.features |= openai.FeatureContinue
		return r.continued(dst, p, t, vars, env)
	}
	text, err := t.Render(dst, vars, env)
	if err != nil {
		return nil, templateError(err)
	}
	return text, nil
}

// modernTransformers reports what a version of transformers does to messages.
func modernTransformers(version string) (modern, known bool) {
	major, minor, ok := majorMinor(version)
	switch {
	case !ok || major == 5 && minor > 19 && minor < 23:
		return false, false
	case major > 5 || major == 5 && minor >= 23:
		return true, true
	}
	return false, true
}

// modernise does what apply_chat_template and _alias_reasoning_fields of newer
// transformers do: no null fields, and thinking in addition to reasoning_content.
func modernise(b *work.Budget, messages *pyvalue.List) {
	for i, item := range messages.Items {
		b.Step(messageSteps)
		b.Memory(messageBytes)
		m := pyvalue.NewDict()
		old := item.(*pyvalue.Dict)
		if reasoning, _ := old.GetString("reasoning_content"); reasoning != nil {
			m.Set("thinking", reasoning)
		}
		for k, v := range old.All() {
			if v != nil {
				m.Set(k, v)
			}
		}
		messages.Items[i] = m
	}
}
