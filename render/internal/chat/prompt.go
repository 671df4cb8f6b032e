package chat

import (
	"slices"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// prompt has the input of a template, as vLLM's render_chat passes it to
// apply_chat_template.
type prompt struct {
	conversation
	source     *pyvalue.List // the messages before normalisation
	tools      *pyvalue.List // nil: no tools
	kwargs     *pyvalue.Dict // the client's chat_template_kwargs, nil: none
	defaults   bool          // the server's default kwargs apply
	asked      string        // the reasoning effort as the client names it, "": not set
	effort     string        // and as the servers read it
	served     []any         // tools that the server runs
	documents  *pyvalue.List
	generation bool // add_generation_prompt
	continues  bool // continue_final_message
	special    bool // the tokenizer adds its special tokens
}

// efforts are the values of reasoning_effort that vLLM accepts.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// IsEffort reports whether vLLM accepts a name as a reasoning effort.
func IsEffort(name string) bool { return slices.Contains(efforts, name) }

// common refuses fields that change the prompt outside the template, on every route.
func common(req *request) error {
	if req.Multimodal {
		return refuse(Multimodal)
	}
	if req.Raw(openai.FieldMMProcessorKwargs) != nil || req.Raw(openai.FieldMediaIOKwargs) != nil {
		return refuse(Multimodal)
	}
	// vLLM ignores these fields on the other two routes, because it does not know them there.
	if req.Route == openai.Chat || req.Route == openai.Completions {
		switch {
		case req.NullSwitch():
			return refuse(Rejected)
		case req.Raw(openai.FieldTruncatePromptTokens) != nil || req.Raw(openai.FieldTruncationSide) != nil:
			return refuse(Truncation)
		case req.Route == openai.Chat && req.Raw(openai.FieldChatTemplate) != nil:
			return refuse(RequestTemplate)
		}
	}
	kv, err := dictField(req, openai.FieldKVTransferParams)
	if kv != nil && has(kv, "prompt_token_ids") {
		return refuse(ReusedTokens)
	}
	return err
}

// chat builds the prompt of /v1/chat/completions, as ChatCompletionRequest and
// OnlineRenderer.render_chat do.
func (r *Renderer) chat(req *request, d dialect) (*prompt, error) {
	p := &prompt{defaults: true}
	r.begin(req.work, p, d, true)
	var err error
	if p.generation, err = boolField(req, openai.FieldAddGenerationPrompt, true); err != nil {
		return nil, err
	}
	if p.continues, err = boolField(req, openai.FieldContinueFinalMessage, false); err != nil {
		return nil, err
	}
	if p.continues && p.generation && (r.coder == nil || req.Raw(openai.FieldAddGenerationPrompt) != nil) {
		return nil, objection("continue_final_message and add_generation_prompt are both set")
	}
	if p.special, err = boolField(req, openai.FieldAddSpecialTokens, false); err != nil {
		return nil, err
	}
	if p.effort, err = textField(req, openai.FieldReasoningEffort); err != nil {
		return nil, err
	}
	if p.documents, err = documents(req); err != nil {
		return nil, err
	}
	if p.kwargs, err = dictField(req, openai.FieldChatTemplateKwargs); err != nil {
		return nil, err
	}
	if err := p.chatTools(req, r.o.ExcludeToolsWhenToolChoiceNone); err != nil {
		return nil, err
	}
	p.openai = r.openaiFormat(p.tools != nil, d)
	p.source, err = listField(req, openai.FieldMessages)
	return p, err
}

func (r *Renderer) begin(b *work.Budget, p *prompt, d dialect, validated bool) {
	p.conversation = conversation{work: b, d: d, coded: r.coded, validated: validated, keepRaw: r.keepRaw, messages: pyvalue.NewList()}
}

func (p *prompt) chatTools(req *request, exclude bool) error {
	list, err := listField(req, openai.FieldTools)
	if err != nil {
		return err
	}
	choice, err := parseField(req, openai.FieldToolChoice)
	if err != nil {
		return err
	}
	if list != nil && len(list.Items) == 0 {
		return objection("tools is an empty array")
	}
	if list != nil {
		if p.tools, err = p.d.tools(p.work, list); err != nil {
			return err
		}
	}
	if err := checkToolChoice(choice, p.tools); err != nil {
		return err
	}
	if choice == "none" && exclude {
		p.tools = nil
	}
	return nil
}

// documents reads a list of objects with string values.
func documents(req *request) (*pyvalue.List, error) {
	list, err := listField(req, openai.FieldDocuments)
	if list == nil || err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		req.work.Step(fieldSteps)
		d, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(Rejected)
		}
		for _, v := range d.All() {
			if _, ok := v.(string); !ok {
				return nil, refuse(Rejected)
			}
		}
	}
	return list, nil
}

// completion checks a request of /v1/completions, whose text goes straight to the
// tokenizer.
func completion(req *request) (special bool, err error) {
	switch {
	case req.Raw(openai.FieldSuffix) != nil:
		return false, refuse(RenderedInCode)
	case req.Raw(openai.FieldPromptEmbeds) != nil:
		return false, refuse(Multimodal)
	case string(req.Raw(openai.FieldPrompt)) == `""`: // even if the tokenizer adds a token
		return false, objection("the prompt is empty")
	}
	return boolField(req, openai.FieldAddSpecialTokens, true)
}

// reserved are the kwargs that are parameters of apply_chat_template or change the
// template's environment, and are no variables of the template.
var reserved = []string{"self", "conversation", "messages", "tools", "documents", "chat_template", "tokenize", "padding",
	"truncation", "max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask", "tokenizer_kwargs",
	"sanitize_control_tokens", "raise_exception", "strftime_now"}

// globals are jinja2's own names: a kwarg of that name never reaches the template.
var globals = []string{"range", "dict", "lipsum", "cycler", "joiner", "namespace"}

// ownVariables are the variables that most requests have besides the special tokens:
// add_generation_prompt, messages, tools and documents.
const ownVariables = 4

// variables returns the template's variables, as merge_kwargs merges them: the special
// tokens, over them the server's defaults, the client's kwargs and the request's own
// fields. Null and "auto" mean not set.
func (p *prompt) variables(r *Renderer) (*pyvalue.Dict, error) {
	vars := pyvalue.NewDictOf(r.special.Len() + ownVariables)
	for name, text := range r.special.All() {
		vars.Set(name, text)
	}
	if p.defaults && r.o.DefaultKwargs != nil {
		for k, v := range r.o.DefaultKwargs.All() {
			vars.Set(k, v)
		}
	}
	if p.asked != "" && !IsEffort(p.asked) {
		return nil, refuse(Rejected)
	}
	thinks := p.effort != "" && p.d.effortThinks
	if p.kwargs != nil && p.kwargs.Len() > 0 {
		p.features |= openai.FeatureKwargs
		for k, v := range p.kwargs.All() {
			p.work.Step(fieldSteps)
			p.work.Memory(fieldBytes)
			name, _ := k.(string)
			if slices.Contains(reserved, name) {
				return nil, refuse(ReservedKwargs)
			}
			thinks = thinks && name != "enable_thinking"
			if v == nil || v == "auto" || slices.Contains(globals, name) {
				continue
			}
			vars.Set(name, v)
		}
	}
	if p.effort != "" {
		p.features |= openai.FeatureReasoning
		if p.effort != "auto" { // not set, to vLLM
			vars.Set("reasoning_effort", p.effort)
		}
	}
	if thinks {
		vars.Set("enable_thinking", p.effort != "none")
	}
	vars.Delete("continue_final_message")
	vars.Set("add_generation_prompt", p.generation)
	vars.Set("messages", p.messages)
	vars.Set("tools", nil)
	if p.tools != nil {
		p.features |= openai.FeatureTools
		vars.Set("tools", p.tools)
	}
	if _, ok := vars.GetString("documents"); !ok || p.documents != nil {
		vars.Set("documents", nil)
	}
	if p.documents != nil {
		p.features |= openai.FeatureDocuments
		vars.Set("documents", p.documents)
	}
	return vars, nil
}
