package chat

import (
	"bytes"
	"fmt"
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

// Options are the parts of a model's files and of a server's flags that decide prompts.
type Options struct {
	Model Model
	// Template is the source of the chat template: the server's
	// --chat-template if it has one, else the model's; "": there is none.
	Template string
	// ToolTemplate renders requests with tools; nil: Template does.
	ToolTemplate *string
	// ContentFormat is one of the formats; empty means auto.
	ContentFormat string
	// SpecialTokens are the tokenizer's special tokens by the names of a template's
	// variables (bos_token, eos_token, …).
	SpecialTokens map[string]string
	// DefaultKwargs is --default-chat-template-kwargs; nil: none.
	DefaultKwargs *pyvalue.Dict
	// ExcludeToolsWhenToolChoiceNone is the flag of that name.
	ExcludeToolsWhenToolChoiceNone bool
	// EffortMap is --reasoning-effort-map: efforts of requests to those of prompts.
	EffortMap map[string]string
	// DisabledThinkingEffort is the effort that thinking.type "disabled" of
	// /v1/messages means; empty: vLLM's own probe of the template finds it.
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
	// Limits bound a template; the zero value has jinja's defaults.
	Limits jinja.Options
	// Work pays for New, which compiles the template and tries it; nil: nothing does.
	Work *work.Budget
}

// merging says whether vLLM moves system messages inside /v1/messages to the front; vLLM
// finds out by rendering the template.
type merging uint8

const (
	mergeNo merging = iota
	mergeYes
	mergeUnknown
)

// Renderer renders requests of one model as one server does.
type Renderer struct {
	o              Options
	coded          bool
	keepRaw        bool  // prompts also keep the messages as the client sent them
	sourceOnly     bool  // prompts have no normalised messages
	tellsDay       bool  // chats depend on the servers' clock
	coder          coder // nil: the model has a template, or code that this package lacks
	refused        error // the error of every chat: jinja does not render a template
	plain, tooled  *template
	dialects       []dialect
	mergeInline    merging
	disabledEffort string        // "": unknown
	special        *pyvalue.Dict // Options.SpecialTokens
	modern         bool          // the server's transformers changes messages as modernise does
	modernKnown    bool
}

// New compiles the template, and probes it as vLLM does at its start. A model that vLLM
// renders in code needs no template: if this package lacks the code, the Renderer refuses
// every chat with RenderedInCode, and renders text completions.
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
	r = &Renderer{o: o, dialects: dialectsOf(o.Version), special: pyvalue.NewDictOf(len(o.SpecialTokens))}
	for name, text := range o.SpecialTokens {
		r.special.Set(name, text)
	}
	r.modern, r.modernKnown = modernTransformers(o.Transformers)
	r.o.Limits.Work = nil
	r.coder, r.coded = newCoder(r)
	if r.coded {
		return r, nil
	}
	if r.plain, err = compile(o.Template, o.Limits); err != nil {
		return r.without("chat template", err)
	}
	r.tooled = r.plain
	if o.ToolTemplate != nil && *o.ToolTemplate != o.Template {
		if r.tooled, err = compile(*o.ToolTemplate, o.Limits); err != nil {
			return r.without("chat template for tools", err)
		}
	}
	if r.plain == nil && r.tooled == nil {
		return r, nil
	}
	_, _, known := majorMinor(o.Version)
	for _, t := range []*template{r.plain, r.tooled} {
		if t == nil {
			continue
		}
		if !known && len(r.dialects) == 2 && t.loops[jinja.Detection32] != t.loops[jinja.Detection33] {
			r.dialects = append(r.dialects, dialect33)
		}
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

// without returns a renderer that refuses every chat if err says that jinja does not
// render the template, and else err.
func (r *Renderer) without(which string, err error) (*Renderer, error) {
	if jinja.Refused(err) == "" {
		return nil, fmt.Errorf("%s: %w", which, err)
	}
	r.plain, r.tooled, r.refused = nil, nil, templateError(err)
	return r, nil
}

// probeMerge renders a conversation with a second system message as
// _detect_merge_inline_system does: in an environment without the special tokens.
func (r *Renderer) probeMerge(b *work.Budget) merging {
	for _, t := range []*template{r.plain, r.tooled} {
		if t == nil {
			return mergeYes
		}
		if strings.Contains(t.source, "strftime_now") {
			return mergeUnknown // vLLM's probe does not define strftime_now
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

// probeEffort probes the template as _probe_disabled_thinking_effort does: it returns
// "none" if the template renders that differently from every other effort, else "low".
// The /render of releases before 0.33 renders "none" even then: if the template reads the
// effort, nothing can verify the text, and probeEffort returns "", for unknown.
func (r *Renderer) probeEffort(b *work.Budget) string {
	now := time.Now()
	render := func(effort string) ([]byte, error) {
		if r.plain == nil {
			return nil, refuse(NoTemplate)
		}
		p := &prompt{defaults: true, generation: true, effort: effort}
		d := dialect32
		if r.from33() {
			d = dialect33
		}
		r.begin(b, p, d, true)
		r.mapEffort(p)
		p.openai = r.openaiFormat(false, d)
		if err := p.add(dict("role", "user", "content", "Hi")); err != nil {
			return nil, err
		}
		return r.text(nil, p, now, false)
	}
	none, err := render("none")
	ignored := err != nil
	for _, effort := range []string{"low", "medium", "high", "xhigh", "max"} {
		text, other := render(effort)
		ignored = ignored || other == nil && bytes.Equal(text, none)
	}
	switch {
	case !ignored:
		return "none"
	case r.from33() || !r.reads("reasoning_effort") && !r.reads("enable_thinking"):
		return "low"
	}
	return ""
}

// printsThinking reports whether a prompt has a message's thinking, at any position of the
// message. It renders prompts to find out.
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

// nearMidnight bounds the difference between a replica's clock and the router's: so close
// to midnight, a prompt may have either day.
const nearMidnight = 5 * time.Minute

// Moments returns the times at which a server may have rendered a chat, the likeliest
// first: one time, or two around the servers' midnight if prompts contain the day.
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
	// Pieces are the parts of the text beyond dst if vLLM encodes each by itself; their
	// offsets count from the end of dst.
	Pieces []tokenizer.Piece
	// TextPrompts are the prompts of /v1/completions.
	TextPrompts []string
	// AddSpecialTokens: the tokenizer adds BOS and the like around the text.
	AddSpecialTokens bool
	// Truncates: vLLM cuts a prompt that is longer than the model's context, and does
	// not refuse it.
	Truncates bool
	// Features are the features of the request.
	Features openai.Features
	// Setting is a hash of what flags of the servers may give another meaning, such as the
	// reasoning effort; 0: the request has no such thing.
	Setting uint64
}

// Render appends to dst the text that vLLM tokenizes for req. now is the server's time,
// for templates that print the date. Render charges b (nil: nothing). The error is a
// [*NotInProcess], or one of package work if b has ended.
func (r *Renderer) Render(b *work.Budget, dst []byte, req *openai.Request, now time.Time) (out Rendered, err error) {
	defer work.Catch(&err)
	return r.within(dst, &request{req, work.Or(b)}, now)
}

func (r *Renderer) within(dst []byte, req *request, now time.Time) (Rendered, error) {
	out := Rendered{Features: req.Route.Feature()}
	if req.Route == openai.Generate {
		return out, refuse(Multimodal) // ids alone need no rendering
	}
	if r.dialects[0].sglang && r.coded {
		return out, refuse(RenderedInCode) // by other code than vLLM's
	}
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
		out.AddSpecialTokens = out.AddSpecialTokens || r.dialects[0].sglang // which ignores the field
		return out, err
	}
	switch {
	case r.coded:
		return out, refuse(RenderedInCode)
	case r.refused != nil:
		return out, r.refused
	case r.plain == nil && r.tooled == nil:
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
		if i == 0 {
			out.Setting = r.setting(req, p)
		}
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
	text, err := r.text(dst, p, now, r.modern)
	if err != nil || r.modernKnown || !p.nulls && !(p.reasoning && r.template(p.tools != nil).thinking) {
		return text, p, err
	}
	again, err := r.build(req, d) // rendering changed the messages
	if err != nil {
		return nil, nil, err
	}
	other, err := r.text(nil, again, now, !r.modern)
	if err == nil && !bytes.Equal(other, text[base:]) {
		err = refuse(TransformersDiffers)
	}
	return text, p, err
}

func (r *Renderer) build(req *request, d dialect) (*prompt, error) {
	if d.sglang {
		p, err := r.sglang(req)
		if err == nil {
			p.asked = p.effort
		}
		return p, err
	}
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
	if err == nil {
		r.mapEffort(p)
	}
	if err == nil && !r.coded && r.template(p.tools != nil) == nil {
		err = refuse(NoTemplate)
	}
	if err == nil && (p.source == nil || len(p.source.Items) == 0 && !r.coded) {
		err = refuse(Rejected)
	}
	if err == nil && !r.sourceOnly {
		err = p.addAll(p.source)
	}
	return p, err
}

// text appends the text of a prompt by the template.
func (r *Renderer) text(dst []byte, p *prompt, now time.Time, modern bool) ([]byte, error) {
	t := r.template(p.tools != nil)
	if p.developer && p.d.developerFallback && !t.developer {
		p.developersToSystem()
	}
	if modern {
		modernise(p.work, p.messages)
	}
	vars, err := p.variables(r)
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

// modernTransformers reports whether a version of transformers changes messages as
// modernise does.
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

// modernise changes messages as apply_chat_template and _alias_reasoning_fields of newer
// transformers do: it drops null fields, and adds thinking beside reasoning_content.
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
