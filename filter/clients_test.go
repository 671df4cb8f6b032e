package filter

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

type object = map[string]any

// item is a piece of a conversation: a user's text, a turn of the model, or a tool's result.
type item struct {
	user, text, thought, args, result string
	call                              int  // number of the call and of its result
	reminded                          bool // the client has added a reminder to the result
}

// agent is a conversation of one client.
type agent struct {
	rng     *rand.Rand
	body    func(*agent) object
	route   openai.Route
	name    string // "" = the client's usual one; another one is a subagent
	project int
	id      int
	items   []item
	turns   int // that were sent
	most    int
}

// brief is how many times shorter than real ones texts are: the race detector is slow at them.
var brief = map[bool]int{false: 1, true: 5}[race.Enabled]

func (a *agent) words(n int) string {
	var b strings.Builder
	for range (n + brief - 1) / brief {
		fmt.Fprintf(&b, "%s ", [...]string{"file", "branch", "test", "error", "index", "writes", "returns", "because", "the", "user", "of", "package"}[a.rng.IntN(12)])
		if a.rng.IntN(4) == 0 {
			fmt.Fprintf(&b, "line %d: ", a.rng.IntN(5000))
		}
	}
	return b.String()
}

// fixed are words that do not depend on the conversation.
func fixed(seed, n int) string { return (&agent{rng: rand.New(rand.NewPCG(uint64(seed), 7))}).words(n) }

// The parts of a client's prompt before the first message: all conversations of a client have the
// first one, those of a project the second one.
func (a *agent) system() string {
	return "You are " + a.name + ", a coding agent. " + fixed(len(a.name), 700)
}

func (a *agent) place() string {
	return fmt.Sprintf("<env>\nWorking directory: /home/user/project-%d\nIs directory a git repo: Yes\n</env>\n%s", a.project, fixed(1000+a.project, 250))
}

// tools returns twelve tools; wrap puts one into the client's form.
func tools(wrap func(name, description string, parameters object) object) (out []object) {
	for i, name := range []string{"Bash", "Read", "Edit", "Write", "Glob", "Grep", "Task", "WebFetch", "TodoWrite", "NotebookEdit", "KillShell", "ExitPlanMode"} {
		out = append(out, wrap(name, fixed(2000+i, 60), object{"type": "object", "required": []string{"path"}, "properties": object{
			"path": object{"type": "string", "description": fixed(3000+i, 8)}, "limit": object{"type": "number"}}}))
	}
	return out
}

// next adds what comes before the agent's next request: a question, or the result of its call. Once
// each the client clears the results of tools, and puts a summary in the place of all.
func (a *agent) next() {
	n := len(a.items)
	a.turns++
	if a.turns == 40 {
		for i := range a.items[:n-6] {
			if a.items[i].result != "" {
				a.items[i].result = "[Old tool result content cleared]"
			}
		}
	}
	switch {
	case a.turns == 80:
		a.items = []item{{user: "This session is being continued from a previous conversation that ran out of context. " + a.words(150)}}
	case n == 0:
		a.items = []item{{user: "Your task: " + a.words(120)}}
	case a.items[n-1].args == "":
		a.items = append(a.items, item{user: a.words(20)})
	default:
		a.items = append(a.items, item{result: a.words(60), call: a.items[n-1].call, reminded: a.turns%7 == 0})
	}
}

// answered adds the model's turn: a call, or from time to time an answer.
func (a *agent) answered() {
	m := item{thought: a.words(15), text: a.words(8), call: 1 + a.turns}
	if a.turns%9 != 0 {
		raw, _ := json.Marshal(object{"path": fmt.Sprintf("/home/user/%d.go", a.rng.IntN(1000)), "limit": 20})
		m.args = string(raw)
	}
	a.items = append(a.items, m)
}

// claudeCode is a body of Claude Code for /v1/messages.
func claudeCode(a *agent) object {
	mark := object{"type": "ephemeral"}
	text := func(s string) object { return object{"type": "text", "text": s} }
	first := []object{text("<system-reminder>\nAs you answer the user's questions, you can use the following context:\n# claudeMd\n" + fixed(4000+a.project, 200) + "</system-reminder>")}
	var messages []object
	for _, it := range a.items {
		switch {
		case it.user != "":
			messages = append(messages, object{"role": "user", "content": append(first, text(it.user))})
			first = nil
		case it.result != "":
			content := []object{{"type": "tool_result", "tool_use_id": fmt.Sprint("toolu_", it.call), "content": it.result, "is_error": false}}
			if it.reminded { // the template takes it for a question, and drops the thoughts before it
				content = append(content, text("<system-reminder>\nThe TodoWrite tool hasn't been used recently.\n</system-reminder>"))
			}
			messages = append(messages, object{"role": "user", "content": content})
		default:
			content := []object{{"type": "thinking", "thinking": it.thought, "signature": "c2lnbmF0dXJl"}, text(it.text)}
			if it.args != "" {
				content = append(content, object{"type": "tool_use", "id": fmt.Sprint("toolu_", it.call), "name": "Read", "input": json.RawMessage(it.args)})
			}
			messages = append(messages, object{"role": "assistant", "content": content})
		}
	}
	last := messages[len(messages)-1]["content"].([]object)
	last[len(last)-1]["cache_control"] = mark // moves with every request
	return object{
		"model": "m", "max_tokens": 32000, "stream": true, "temperature": 1,
		"metadata": object{"user_id": fmt.Sprintf("user_1_account__session_%d", a.id)},
		"system": []object{text(fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.42; cc_entrypoint=cli; cch=%05x;", a.rng.IntN(1<<20))),
			{"type": "text", "text": a.system(), "cache_control": mark}, {"type": "text", "text": a.place(), "cache_control": mark}},
		"tools": tools(func(name, description string, parameters object) object {
			return object{"name": name, "description": description, "input_schema": parameters}
		}),
		"messages": messages,
	}
}

// codex is a body of Codex for /v1/responses.
func codex(a *agent) object {
	message := func(role, kind, s string) object {
		return object{"type": "message", "role": role, "content": []object{{"type": kind, "text": s}}}
	}
	input := []object{
		message("user", "input_text", fmt.Sprintf("# AGENTS.md instructions for /home/user/project-%d\n\n<INSTRUCTIONS>\n%s</INSTRUCTIONS>", a.project, fixed(4000+a.project, 200))),
		message("user", "input_text", "<environment_context>\n"+a.place()+"</environment_context>"),
	}
	for _, it := range a.items {
		switch {
		case it.user != "":
			input = append(input, message("user", "input_text", it.user))
		case it.result != "":
			input = append(input, object{"type": "function_call_output", "call_id": fmt.Sprint("call_", it.call), "output": it.result})
		default:
			input = append(input, object{"type": "reasoning", "id": fmt.Sprint("rs_", it.call), "summary": []object{}, "content": []object{{"type": "reasoning_text", "text": it.thought}}, "encrypted_content": nil},
				message("assistant", "output_text", it.text))
			if it.args != "" {
				input = append(input, object{"type": "function_call", "name": "Read", "arguments": it.args, "call_id": fmt.Sprint("call_", it.call)})
			}
		}
	}
	return object{
		"model": "m", "instructions": a.system(), "input": input, "tool_choice": "auto", "parallel_tool_calls": false,
		"reasoning": object{"effort": "medium", "summary": "auto"}, "store": false, "stream": true, "include": []string{"reasoning.encrypted_content"},
		"prompt_cache_key": fmt.Sprint(a.id),
		"tools": tools(func(name, description string, parameters object) object {
			return object{"type": "function", "name": name, "description": description, "strict": false, "parameters": parameters}
		}),
	}
}

// openAISDK is a body of a program that uses OpenAI's SDK, for /v1/chat/completions.
func openAISDK(a *agent) object {
	messages := []object{{"role": "system", "content": a.system() + a.place()}}
	for _, it := range a.items {
		switch {
		case it.user != "":
			messages = append(messages, object{"role": "user", "content": it.user})
		case it.result != "":
			messages = append(messages, object{"role": "tool", "tool_call_id": fmt.Sprint("call_", it.call), "content": it.result})
		case it.args != "":
			messages = append(messages, object{"role": "assistant", "content": nil, "tool_calls": []object{
				{"id": fmt.Sprint("call_", it.call), "type": "function", "function": object{"name": "Read", "arguments": it.args}}}})
		default:
			messages = append(messages, object{"role": "assistant", "content": it.text})
		}
	}
	return object{
		"model": "m", "messages": messages, "stream": true, "stream_options": object{"include_usage": true}, "parallel_tool_calls": true,
		"tools": tools(func(name, description string, parameters object) object {
			return object{"type": "function", "function": object{"name": name, "description": description, "parameters": parameters}}
		}),
	}
}

// TestSessionsOfRealClients: of coding agents that are at work at the same time, at least 99 of 100
// turns are known as their session's, by the token ids of the bodies that their clients send: with
// results that the client clears later, reminders in one request alone, summaries in the place of
// whole conversations, and subagents.
func TestSessionsOfRealClients(t *testing.T) {
	model := must.Get(tokens.LoadFolder(t.Context(), "../.cache/models/qwen3", tokens.Flags{Transformers: "5.19.0"}))(t)
	for name, c := range map[string]struct {
		route openai.Route
		body  func(*agent) object
	}{"Claude Code": {openai.Messages, claudeCode}, "Codex": {openai.Responses, codex}, "SDK": {openai.Chat, openAISDK}} {
		if race.Enabled && name != "SDK" {
			continue // make test-long runs them, without the race detector
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := tokens.NewLocal(tokens.LocalOptions{
				TrustUnverified: ^openai.Features(0), SampleEvery: -1,
				Endpoints: func(string) []tokens.Endpoint { return []tokens.Endpoint{{Version: "0.32.0"}} },
			})
			must.Do(t, source.Load("m", model))
			source.CheckAll(t.Context())
			now := time.Unix(1_700_000_000, 0)
			b := newBenchAt(t, func() time.Time { return now }, source, replica(1))
			must.Get(b.book.Replace(policy.Config{Sessions: policy.Sessions{Share: 0.1}}))(t)
			rng := rand.New(rand.NewPCG(1, 1))
			var all []*agent
			for i := range 9 { // the last three are subagents of the first three
				a := &agent{rng: rand.New(rand.NewPCG(uint64(i), 2)), body: c.body, route: c.route, name: name, project: max(1, i), id: i % 6, most: 110}
				if i >= 6 {
					a.name, a.project, a.most = "a subagent", max(1, i-6), 12
				}
				all = append(all, a)
			}
			w := &watched{b: b, had: map[*agent]uint64{}, of: map[uint64]*agent{}, open: map[*agent]func(){}}
			for len(all) > 0 {
				i := rng.IntN(len(all))
				now = now.Add(time.Duration(rng.IntN(2000)) * time.Millisecond)
				if w.step(t, all[i]); all[i].turns == all[i].most && w.open[all[i]] == nil {
					all = slices.Delete(all, i, i+1)
				}
			}
			if w.turns < 600 || 100*w.wrong > w.turns {
				t.Errorf("%d of %d turns are another session's", w.wrong, w.turns)
			}
		})
	}
}

// watched counts the turns that are taken for another session's.
type watched struct {
	b            *bench
	had          map[*agent]uint64 // the session of its latest turn
	of           map[uint64]*agent
	open         map[*agent]func() // ends the request in flight
	turns, wrong int
}

// step ends the agent's request in flight, or sends the next one.
func (w *watched) step(t *testing.T, a *agent) {
	t.Helper()
	if end := w.open[a]; end != nil {
		end()
		a.answered()
		delete(w.open, a)
		return
	}
	a.next()
	body := must.Get(json.Marshal(a.body(a)))(t)
	d := w.b.router.Route(t.Context(), &Query{Route: a.route, Body: body})
	if d.Reservation == nil {
		t.Fatalf("%s, turn %d: %s", a.name, a.turns, d.Reason)
	}
	w.open[a] = d.Reservation.Release
	session, _ := d.Reservation.Session()
	w.turns++
	if owner := w.of[session]; session == 0 || owner != nil && owner != a && w.had[owner] == session || a.turns > 1 && w.had[a] != session {
		w.wrong++
		t.Logf("agent %d of project %d, turn %d: session %d, before %d", a.id, a.project, a.turns, session, w.had[a])
	}
	w.had[a], w.of[session] = session, a
}
