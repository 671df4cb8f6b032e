package chat

import (
	"slices"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// newDeepSeekV4 returns a writer that writes as deepseek_v4_encoding does.
func newDeepSeekV4(r *Renderer) coder {
	d := newDeepSeek(r, FormatOpenAI)
	d.fim, d.encode = true, encodeV4
	return d
}

var (
	tagsV4  = dsTags{calls: "tool_calls", invoke: "invoke", parameter: "parameter"}
	tagsV41 = dsTags{calls: " calls", invoke: " invoke", parameter: " parameter"}
)

// toolsV4 is the text around the tools, with the blocks' names left open.
const toolsV4 = `## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<@CALLS>" block like the following:

<@CALLS>
<@INVOKE name="$TOOL_NAME">
<@PARAMETER name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</@PARAMETER>
...
</@INVOKE>
<@INVOKE name="$TOOL_NAME2">
...
</@INVOKE>
</@CALLS>

String parameters should be specified as is and set ` + "`string=\"true\"`" + `. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set ` + "`string=\"false\"`" + `.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside <think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

`

const toolsV4End = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"

var (
	toolsTextV4  = toolsV4Text(tagsV4)
	toolsTextV41 = toolsV4Text(tagsV41)
)

func toolsV4Text(t dsTags) string {
	return strings.NewReplacer("@CALLS", dsmlToken+t.calls, "@INVOKE", dsmlToken+t.invoke, "@PARAMETER", dsmlToken+t.parameter).Replace(toolsV4)
}

// effortsV4 maps efforts to the text before a prompt.
var effortsV4 = map[string]string{
	"low": "",
	"high": "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n" +
		"You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n" +
		"Explicitly write out your entire deliberation process, documenting every intermediate step, considered alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n",
	"max": "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n" +
		"You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause rather than any surface symptom.\n" +
		"Do not stop reasoning until you have independently verified the solution from multiple angles and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n",
}

// tasksV4 maps the tasks that a message may name to their tokens.
var tasksV4 = map[string]string{"action": "<｜action｜>", "query": "<｜query｜>", "authority": "<｜authority｜>",
	"domain": "<｜domain｜>", "title": "<｜title｜>", "read_url": "<｜read_url｜>"}

// v4 writes one prompt of V4 or of V4.1.
type v4 struct {
	work      *work.Budget
	dst       []byte
	v41       bool
	newer     bool // V4.1 of vLLM 0.33: results of tools alone open no turn
	thinking  bool
	drop      bool   // thoughts before the last user message are left out
	effort    string // the text before the first message when thinking
	tags      dsTags
	toolsText string
	messages  []*v4message
	lastUser  int
}

// v4message is a message, or one made of several messages of a user and of tools.
type v4message struct {
	role      string
	content   string
	blocks    []v4block // of a user's message
	reasoning string
	calls     *pyvalue.List
	tools     *pyvalue.List
	format    any  // response_format, nil: none
	task      any  // nil: none
	open      bool // wo_eos
}

// v4block is a text of a user or a tool's result.
type v4block struct {
	text string
	tool bool
	call any // the id of the result's call
}

func encodeV4(dst []byte, p *prompt, vars *pyvalue.Dict) ([]byte, error) {
	v := &v4{work: p.work, dst: dst, thinking: dsThinks(vars, true), tags: tagsV4, toolsText: toolsTextV4}
	effort := "low"
	e, _ := vars.GetString("reasoning_effort")
	switch e, ok := e.(string); {
	case !ok:
		effort = "high" // read when thinking only
	case e == "none":
		v.thinking = false
	case e == "max":
		effort = "max"
	case e != "low" && e != "minimal" && e != "medium":
		effort = "high"
	}
	v.effort = effortsV4[effort]
	for _, item := range p.messages.Items {
		m := item.(*pyvalue.Dict)
		content, _ := m.GetString("content")
		task, _ := m.GetString("task")
		if err := v.add(m, content, task); err != nil {
			return nil, err
		}
	}
	return v.encode(p, vars)
}

// add appends a message. It merges neighbours of a user and of tools.
func (v *v4) add(m *pyvalue.Dict, content, task any) error {
	v.work.Step(2 * messageSteps)
	v.work.Memory(messageBytes)
	role := text(m, "role")
	var last *v4message
	if n := len(v.messages); n > 0 && v.messages[n-1].role == "user" {
		last = v.messages[n-1]
	}
	switch role {
	case "tool":
		id, ok := m.GetString("tool_call_id")
		if !ok {
			id = ""
		}
		block := v4block{text: resultV4(content), tool: true, call: id}
		if last != nil {
			last.blocks = append(last.blocks, block)
		} else {
			v.messages = append(v.messages, &v4message{role: "user", blocks: []v4block{block}})
		}
		return nil
	case "user":
		flat, err := dsFlatten(content)
		if err != nil {
			return err
		}
		if last != nil && last.task == nil {
			last.blocks = append(last.blocks, v4block{text: flat})
		} else {
			v.messages = append(v.messages, &v4message{role: role, blocks: []v4block{{text: flat}}, task: task})
		}
		return nil
	}
	flat, err := dsFlatten(content)
	if err != nil && !v.v41 {
		// vLLM flattens the content when it writes the message, and may drop the message.
		return refuse(UnknownShape)
	}
	v.messages = append(v.messages, &v4message{role: role, content: flat, reasoning: text(m, "reasoning"),
		calls: list(m, "tool_calls"), task: task})
	return nil
}

// resultV4 returns the text of a tool's result: of parts other than text it has their
// types.
func resultV4(content any) string {
	list, ok := content.(*pyvalue.List)
	if !ok {
		s, _ := content.(string)
		return s
	}
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		if t, ok := dsPartText(item); ok {
			texts = append(texts, t)
		} else {
			texts = append(texts, "[Unsupported "+text(item.(*pyvalue.Dict), "type")+"]")
		}
	}
	return strings.Join(texts, "\n\n")
}

func (v *v4) encode(p *prompt, vars *pyvalue.Dict) ([]byte, error) {
	v.drop = true
	if d, ok := vars.GetString("drop_thinking"); ok {
		v.drop = pyvalue.Truth(d)
	}
	if p.tools != nil && len(p.tools.Items) > 0 {
		v.giveTools(p.tools)
		v.drop = false
	}
	v.sortResults()
	v.findLastUser()
	if v.thinking && v.drop {
		v.dropThinking()
		v.findLastUser()
	}
	v.dst = append(v.dst, dsBegin...)
	for i, m := range v.messages {
		if err := v.message(i, m); err != nil {
			return nil, err
		}
		if err := v.transition(i, m); err != nil {
			return nil, err
		}
	}
	return v.dst, nil
}

// giveTools attaches the tools to the first system message, or to a new one in front.
func (v *v4) giveTools(tools *pyvalue.List) {
	for _, m := range v.messages {
		if m.role == "system" {
			m.tools = tools
			return
		}
	}
	v.messages = slices.Insert(v.messages, 0, &v4message{role: "system", tools: tools})
}

// sortResults puts the results in a message in the order of their calls.
func (v *v4) sortResults() {
	order := map[any]int{}
	for _, m := range v.messages {
		if m.role == "assistant" && m.calls != nil {
			clear(order)
			for i, item := range m.calls.Items {
				if id := text(item.(*pyvalue.Dict), "id"); id != "" {
					order[id] = i
				}
			}
		}
		var at []int
		var results []v4block
		for i, b := range m.blocks {
			if b.tool {
				at, results = append(at, i), append(results, b)
			}
		}
		if len(results) < 2 || len(order) == 0 {
			continue
		}
		slices.SortStableFunc(results, func(a, b v4block) int { return order[a.call] - order[b.call] })
		for i, b := range results {
			m.blocks[at[i]] = b
		}
	}
}

func (v *v4) findLastUser() {
	v.lastUser = -1
	for i := len(v.messages) - 1; i >= 0; i-- {
		switch role := v.messages[i].role; {
		case role == "user" && v.newer && !slices.ContainsFunc(v.messages[i].blocks, func(b v4block) bool { return !b.tool }):
		case role == "user", role == "developer", role == "system" && v.v41 && i > 0:
			v.lastUser = i
			return
		}
	}
}

func (v *v4) dropThinking() {
	kept := v.messages[:0:0]
	for i, m := range v.messages {
		switch {
		case i >= v.lastUser, slices.Contains([]string{"user", "system", "latest_reminder", "direct_search_results"}, m.role):
		case m.role == "assistant":
			m.reasoning = ""
		default:
			continue
		}
		kept = append(kept, m)
	}
	v.messages = kept
}

func (v *v4) write(texts ...string) {
	for _, t := range texts {
		v.work.Step(1 + len(t)/32)
		before := cap(v.dst)
		v.dst = append(v.dst, t...)
		work.Grown(v.work, before, v.dst)
	}
}

func (v *v4) message(i int, m *v4message) error {
	if i == 0 {
		if v.v41 && (v.thinking || m.role == "system") {
			v.write(dsSystem)
		}
		if v.thinking {
			v.write(v.effort)
		}
	}
	switch m.role {
	case "system":
		if v.v41 && i > 0 {
			v.write(dsSystem)
		}
		v.write(m.content)
		return v.attached(m)
	case "developer":
		if m.content == "" {
			return objection("a developer message is empty")
		}
		v.write(dsUser, m.content)
		return v.attached(m)
	case "user":
		v.write(dsUser)
		for j, b := range m.blocks {
			if j > 0 {
				v.write("\n\n")
			}
			if b.tool {
				v.write("<tool_result>", b.text, "</tool_result>")
			} else {
				v.write(b.text)
			}
		}
	case "latest_reminder":
		v.write(dsReminder, m.content)
	case "assistant":
		return v.assistant(i, m)
	default:
		return objection("a message's role is unknown")
	}
	return nil
}

// attached writes a message's tools and response format.
func (v *v4) attached(m *v4message) (err error) {
	if m.tools != nil {
		v.write("\n\n", v.toolsText)
		if v.dst, err = dsTools(v.work, v.dst, m.tools); err != nil {
			return err
		}
		v.write(toolsV4End)
	}
	if m.format != nil {
		v.write("\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n")
		v.dst, err = dsJSON(v.work, v.dst, m.format)
	}
	return err
}

func (v *v4) assistant(i int, m *v4message) (err error) {
	isTask := i > 0 && v.messages[i-1].task != nil
	if v.thinking && !isTask && (!v.drop || i > v.lastUser) {
		v.write(m.reasoning, dsThought)
	}
	v.write(m.content)
	if m.calls != nil {
		if v.dst, err = v.tags.appendCalls(v.work, v.dst, m.calls); err != nil {
			return err
		}
	}
	if !m.open {
		v.write(dsEnd)
	}
	return nil
}

// transition writes the tokens between a message and the assistant's answer.
func (v *v4) transition(i int, m *v4message) error {
	last := i == len(v.messages)-1
	if !last && v.messages[i+1].role != "assistant" && v.messages[i+1].role != "latest_reminder" {
		return nil
	}
	think := dsThought
	if v.thinking {
		think = dsThink
	}
	if m.task != nil {
		name, _ := m.task.(string)
		token, ok := tasksV4[name]
		if !ok {
			return objection("a message's task is unknown")
		}
		if name == "action" {
			v.write(dsAssistant, think)
		}
		v.write(token)
		return nil
	}
	opens := m.role == "user" || m.role == "developer"
	if m.role == "system" {
		opens = v.v41 && i > 0 || !v.v41 && (last || v.messages[i+1].role == "assistant")
	}
	if !opens {
		return nil
	}
	v.write(dsAssistant)
	if v.drop && i < v.lastUser {
		think = dsThought
	}
	v.write(think)
	return nil
}
