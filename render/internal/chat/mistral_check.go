package chat

import (
	"regexp"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// mistralCheck is mistral-common's validator, as vLLM runs it (mode test).
type mistralCheck struct {
	version int
	work    *work.Budget
}

var (
	// Python's $ also matches before a line feed at the end.
	mistralName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}\n?$`)
	mistralID   = regexp.MustCompile(`^[a-zA-Z0-9]{9}\n?$`)
)

// followers maps a role to the roles that may come after it.
var followers = map[string]string{"system": "user assistant system", "user": "assistant system user",
	"assistant": "assistant user tool", "tool": "assistant tool user"}

func (c mistralCheck) messages(messages []mistralMessage) error {
	last := messages[len(messages)-1]
	switch {
	case len(messages) == 1 && last.role != "user" && last.role != "system":
		return objection("the conversation does not start with a user or system message")
	case len(messages) > 1 && last.role == "assistant" && !last.prefix:
		return objection("the last message is not the user's or a tool's, nor one to be continued")
	}
	for i := 1; i < len(messages); i++ {
		if !strings.Contains(followers[messages[i-1].role], messages[i].role) {
			return objection("unexpected role " + messages[i].role + " after role " + messages[i-1].role)
		}
	}
	paired := c.counted
	if c.version >= 11 {
		paired = c.matched
	}
	if err := paired(messages[1:]); err != nil {
		return err
	}
	for _, m := range messages {
		if err := c.message(m); err != nil {
			return err
		}
	}
	return nil
}

// counted checks that before the assistant's next message there are as many results as
// calls.
func (c mistralCheck) counted(messages []mistralMessage) error {
	awaited := 0
	for _, m := range messages {
		switch m.role {
		case "tool":
			awaited--
		case "assistant":
			if awaited != 0 {
				return objection("not the same number of function calls and responses")
			}
			awaited = len(m.calls)
		}
	}
	return nil
}

// matched checks that the ids of results are the ids of the calls before them.
func (c mistralCheck) matched(messages []mistralMessage) error {
	calls, results := map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		switch m.role {
		case "tool":
			switch {
			case results[m.id]:
				return objection("duplicate tool call id in tool results")
			case !calls[m.id]:
				return objection("unexpected tool call id in tool results")
			}
			results[m.id] = true
		case "assistant":
			if len(calls) != len(results) {
				return objection("not the same number of function calls and responses")
			}
			clear(calls)
			clear(results)
			for _, call := range m.calls {
				if calls[call.id] {
					return objection("duplicate tool call id in an assistant message")
				}
				calls[call.id] = true
			}
		}
	}
	return nil
}

func (c mistralCheck) message(m mistralMessage) error {
	switch m.role {
	case "system":
		if m.content.thinks() && (c.version < 7 || c.version >= 15) {
			return objection("a thinking chunk cannot be used in a system message")
		}
	case "tool":
		if m.named && !mistralName.MatchString(m.name) {
			return objection("the function's name is not valid")
		}
		return c.id(m.id)
	case "assistant":
		if m.content.thinks() && c.version < 11 {
			return objection("a thinking chunk cannot be used in an assistant message")
		}
		if c.version < 7 && m.content.empty() == (len(m.calls) == 0) {
			return objection("an assistant message must have either content or tool calls, but not both")
		}
		for _, call := range m.calls {
			if err := c.id(call.id); err != nil {
				return err
			}
			if !mistralName.MatchString(call.name) {
				return objection("the function's name is not valid")
			}
		}
	}
	return nil
}

// id checks the id of a call or a result.
func (c mistralCheck) id(id string) error {
	switch {
	case c.version < 3:
		return nil
	case c.version < 13 && !mistralID.MatchString(id):
		return objection("the tool call id is not 9 of a-z, A-Z, 0-9")
	case c.version >= 13 && (id == "" || id == nullID):
		return objection("the tool call id is empty")
	}
	return nil
}

// tools checks the tools, and dumps them with the fields of mistral-common's class.
func (c mistralCheck) tools(list *pyvalue.List) (string, error) {
	out := pyvalue.NewList()
	for _, item := range list.Items {
		c.work.Step(2 * messageSteps)
		c.work.Memory(2 * messageBytes)
		f, _ := item.(*pyvalue.Dict).GetString("function")
		function := f.(*pyvalue.Dict)
		name, _ := str(function, "name")
		description, _ := str(function, "description")
		parameters, _ := function.GetString("parameters")
		if parameters == nil {
			parameters = pyvalue.NewDict()
		}
		if err := checkSchema(c.work, parameters); err != nil {
			return "", err
		}
		if !mistralName.MatchString(name) {
			return "", objection("the function's name is not valid")
		}
		out.Items = append(out.Items, dict("type", "function",
			"function", dict("name", name, "description", description, "parameters", parameters)))
	}
	if len(out.Items) == 0 {
		return "", nil
	}
	return dumpUnicode(c.work, out)
}
