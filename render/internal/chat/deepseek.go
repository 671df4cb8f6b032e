package chat

import (
	"strings"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// The texts that DeepSeek's encoders write around messages. The whole prompt is one
// text: the tokenizer finds added tokens everywhere in it, even in a client's text.
const (
	dsBegin     = "<｜begin▁of▁sentence｜>"
	dsEnd       = "<｜end▁of▁sentence｜>"
	dsUser      = "<｜User｜>"
	dsAssistant = "<｜Assistant｜>"
	dsSystem    = "<｜System｜>"
	dsReminder  = "<｜latest_reminder｜>"
	dsThink     = "<think>"
	dsThought   = "</think>"
	dsmlToken   = "｜DSML｜"
)

// deepSeek writes the prompts of DeepSeek V3.2, V4 and V4.1: it builds vLLM's usual
// conversation (for V4.1 the raw one), and calls the version's encoder.
type deepSeek struct {
	r      *Renderer
	fim    bool // /v1/completions takes a suffix
	encode func(dst []byte, p *prompt, vars *pyvalue.Dict) ([]byte, error)
}

// newDeepSeek prepares r for a model without a template: r merges the system messages
// inside /v1/messages, and "none" is the effort that disables thinking.
func newDeepSeek(r *Renderer, format string) *deepSeek {
	r.o.ContentFormat = format
	r.mergeInline = mergeYes
	r.disabledEffort = r.o.DisabledThinkingEffort
	if r.disabledEffort == "" {
		r.disabledEffort = "none"
	}
	return &deepSeek{r: r}
}

func (d *deepSeek) write(out *Rendered, req *request, _ time.Time) error {
	if err := common(req); err != nil {
		return d.media(req, err)
	}
	if req.Route == openai.Completions {
		return d.completion(out, req)
	}
	if d.r.older() {
		return refuse(VersionDiffers)
	}
	p, err := d.r.build(req, dialect32)
	if err != nil {
		return err
	}
	if err := forcesOne(req, p.tools); err != nil {
		return err
	}
	vars, err := p.variables(d.r)
	if err != nil {
		return err
	}
	out.Features |= p.features
	out.Setting = d.r.setting(req, p)
	out.AddSpecialTokens = p.special
	out.Text, err = d.encode(out.Text, p, vars)
	return err
}

// forcesOne objects to a forced tool whose name several tools have: vLLM cannot make the
// grammar of the answer then.
func forcesOne(req *request, tools *pyvalue.List) error {
	if req.Route != openai.Chat || tools == nil {
		return nil
	}
	choice, err := parseField(req, openai.FieldToolChoice)
	d, ok := choice.(*pyvalue.Dict)
	if !ok {
		return err
	}
	f, _ := d.GetString("function")
	function, _ := f.(*pyvalue.Dict) // checkToolChoice has checked the type
	n := 0
	for _, item := range tools.Items {
		f, _ := item.(*pyvalue.Dict).GetString("function")
		if text(f.(*pyvalue.Dict), "name") == text(function, "name") {
			n++
		}
	}
	if n > 1 {
		return objection("Forced tool choice must resolve to exactly one tool.")
	}
	return nil
}

// media returns err, or the objection of a model without vision to a request with media.
func (d *deepSeek) media(req *request, err error) error {
	if req.Multimodal && !d.r.o.Model.Vision && req.Route == openai.Chat {
		return objection("the model is not a multimodal one")
	}
	return err
}

// completion joins a prompt and its suffix, if the model has a form for that.
func (d *deepSeek) completion(out *Rendered, req *request) (err error) {
	if req.Raw(openai.FieldSuffix) == nil {
		out.AddSpecialTokens, err = completion(req)
		return err
	}
	suffix, err := textField(req, openai.FieldSuffix)
	switch {
	case err != nil:
		return err
	case !d.fim || len(req.TextPrompts) == 0 || req.Raw(openai.FieldPromptEmbeds) != nil:
		return objection("suffix is not supported")
	case len(req.TextPrompts) == 1 && req.TextPrompts[0] == "":
		return objection("the prompt is empty")
	}
	if echo, err := boolField(req, openai.FieldEcho, false); err != nil || echo {
		return either(err != nil, err, objection("echo is not supported with suffix"))
	}
	out.TextPrompts = make([]string, len(req.TextPrompts))
	for i, text := range req.TextPrompts {
		out.TextPrompts[i] = "<｜fim▁begin｜>" + text + "<｜fim▁hole｜>" + suffix + "<｜fim▁end｜>"
	}
	out.AddSpecialTokens, err = boolField(req, openai.FieldAddSpecialTokens, true)
	return err
}

// dsThinks reads the kwargs that turn thinking on; without them it returns absent.
func dsThinks(vars *pyvalue.Dict, absent bool) bool {
	a, hasA := vars.GetString("thinking")
	b, hasB := vars.GetString("enable_thinking")
	if !hasA && !hasB {
		return absent
	}
	return pyvalue.Truth(a) || pyvalue.Truth(b)
}

// dsTools appends each function on a line, as json.dumps prints it.
func dsTools(w *work.Budget, dst []byte, tools *pyvalue.List) ([]byte, error) {
	for i, item := range tools.Items {
		if i > 0 {
			dst = append(dst, '\n')
		}
		function, _ := item.(*pyvalue.Dict).GetString("function")
		var err error
		if dst, err = dsJSON(w, dst, function); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// dsDumps are the options of json.dumps(v, ensure_ascii=False).
var dsDumps = func() pyvalue.DumpOptions {
	o := pyvalue.DefaultDumps()
	o.EnsureASCII = false
	return o
}()

func dsJSON(w *work.Budget, dst []byte, v any) ([]byte, error) {
	o := dsDumps
	o.Work = w
	dst, err := pyvalue.AppendDumps(dst, v, o)
	if err != nil {
		return nil, refuse(UnknownShape)
	}
	return dst, nil
}

// dsTags are the names of the blocks around calls, a call and a parameter.
type dsTags struct{ calls, invoke, parameter string }

// appendCalls appends an assistant's calls.
func (t dsTags) appendCalls(w *work.Budget, dst []byte, calls *pyvalue.List) ([]byte, error) {
	dst = append(dst, "\n\n<"+dsmlToken+t.calls+">\n"...)
	for i, item := range calls.Items {
		w.Step(messageSteps)
		if i > 0 {
			dst = append(dst, '\n')
		}
		f, _ := item.(*pyvalue.Dict).GetString("function")
		function := f.(*pyvalue.Dict)
		name, _ := function.GetString("name")
		dst = append(dst, "<"+dsmlToken+t.invoke+` name="`...)
		dst = append(append(dst, name.(string)...), "\">\n"...)
		arguments, _ := function.GetString("arguments")
		var err error
		if dst, err = t.appendArguments(w, dst, arguments.(*pyvalue.Dict)); err != nil {
			return nil, err
		}
		dst = append(dst, "\n</"+dsmlToken+t.invoke+">"...)
	}
	return append(dst, "\n</"+dsmlToken+t.calls+">"...), nil
}

// appendArguments writes strings unchanged and other values as JSON.
func (t dsTags) appendArguments(w *work.Budget, dst []byte, arguments *pyvalue.Dict) ([]byte, error) {
	first := true
	for k, v := range arguments.All() {
		if !first {
			dst = append(dst, '\n')
		}
		first = false
		w.Step(messageSteps)
		text, isText := v.(string)
		dst = append(dst, "<"+dsmlToken+t.parameter+` name="`...)
		dst = append(dst, k.(string)...)
		if isText {
			dst = append(append(dst, `" string="true">`...), text...)
		} else {
			var err error
			if dst, err = dsJSON(w, append(dst, `" string="false">`...), v); err != nil {
				return nil, err
			}
		}
		dst = append(dst, "</"+dsmlToken+t.parameter+">"...)
	}
	return dst, nil
}

// dsFlatten joins the texts of a content in parts. It objects to other parts than text.
func dsFlatten(v any) (string, error) {
	list, ok := v.(*pyvalue.List)
	if !ok {
		text, _ := v.(string)
		return text, nil
	}
	if len(list.Items) == 1 {
		if text, ok := dsPartText(list.Items[0]); ok {
			return text, nil
		}
	}
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		text, ok := dsPartText(item)
		if !ok {
			return "", objection("a content part is neither text nor an image")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n\n"), nil
}

func dsPartText(v any) (string, bool) {
	part, ok := v.(*pyvalue.Dict)
	if !ok {
		return "", false
	}
	if kind, _ := part.GetString("type"); kind != "text" {
		return "", false
	}
	v, _ = part.GetString("text")
	text, ok := v.(string)
	return text, ok
}

// text returns m[key] if it is a string, else "".
func text(m *pyvalue.Dict, key string) string {
	v, _ := m.GetString(key)
	s, _ := v.(string)
	return s
}

// list returns m[key] if it is a non-empty list, else nil.
func list(m *pyvalue.Dict, key string) *pyvalue.List {
	v, _ := m.GetString(key)
	if l, ok := v.(*pyvalue.List); ok && len(l.Items) > 0 {
		return l
	}
	return nil
}

func either[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}
