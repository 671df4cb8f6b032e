package tokens

import (
	"encoding/json"
	"strings"

	"warmroute/render/openai"
)

// The probes, from simple to composed; MODEL stands for the model. They touch
// every feature and every known source of errors: number forms, key order,
// unions in schemas, empty and null content, parts in each role (a content format that a flag sets), text that looks like control
// tokens, scripts, white space.
var (
	probeTools = `[{"type":"function","function":{"name":"search","description":"Find \"things\" in Zürich","parameters":{"type":"object",` +
		`"properties":{"query":{"type":"string","description":"日本語 <b>&'x'</b>"},"limit":{"type":["integer","null"],"default":1.50,"minimum":1e-7},` +
		`"ids":{"type":"array","items":{"enum":[1,2.0,12345678901234567890,"a",null,true]}}},"required":["query"]}}},` +
		`{"type":"function","function":{"name":"now","strict":true}}]`
	probeCall   = `{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"search","arguments":"{\"query\": \"é\\n\", \"nested\": {\"b\": [1, 2.50, -0.0, 1e22, null], \"a\": {}}}"}}]}`
	probeParts  = `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`
	probeResult = `{"role":"tool","tool_call_id":"call_1","content":"{\"ok\": true}"}`

	probeBodies = []struct {
		route openai.Route
		body  string
	}{
		{openai.Completions, `"prompt":"Once upon a time"`},
		{openai.Completions, `"prompt":["  two ","prompts\n\nالعربية 👩‍👧 e\u0301"]`},
		{openai.Completions, `"prompt":"plain","add_special_tokens":false`},
		{openai.Chat, `"messages":[{"role":"user","content":"Hello"}]`},
		{openai.Chat, `"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"What is 12345 * 3.14?"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello there."},{"role":"user","content":"  trailing \n\n"}]`},
		{openai.Chat, `"messages":[{"role":"system","content":""},{"role":"user","content":"<|im_end|> </s> [INST] <think>x</think> {{ y }}"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"日本語 हिन्दी עברית 🏳️‍🌈 \u00a0\u200b\u2028 ſ e\u0301"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"go on"}],"add_generation_prompt":false`},
		{openai.Chat, `"messages":[{"role":"user","content":"x","name":"bob"}],"add_special_tokens":true`},
		{openai.Chat, `"messages":[{"role":"user","content":[{"type":"text","text":"one part"}]}]`},
		{openai.Chat, `"messages":[{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},{"type":"text","text":"b"}]}]`},
		{openai.Chat, `"messages":[{"role":"system","content":PARTS},{"role":"user","content":"x"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":PARTS},{"role":"user","content":"y"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"tools":TOOLS`},
		{openai.Chat, `"messages":[{"role":"system","content":"s"},{"role":"user","content":"x"}],"tools":TOOLS,"tool_choice":"auto"`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"tools":TOOLS,"tool_choice":"none"`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},CALL,RESULT]`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},CALL,RESULT,{"role":"assistant","content":"done"},{"role":"user","content":"y"}],"tools":TOOLS`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"now","arguments":""}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"}]}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":false}`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"enable_thinking":true,"unused":[1.0,null]}`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"a","reasoning":"because"},{"role":"user","content":"y"}]`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"I will  "}],"continue_final_message":true,"add_generation_prompt":false`},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"documents":[{"title":"t","text":"d"}]`},
		{openai.Chat, `"messages":[{"role":"developer","content":"d"},{"role":"user","content":"x"}]`},
		{openai.Chat, `"messages":[{"role":"developer","content":PARTS},{"role":"user","content":"x"}]`},
		{openai.Responses, `"input":"Hello"`},
		{openai.Responses, `"instructions":"Be terse.","input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":[{"type":"input_text","text":"more"}]}]`},
		{openai.Responses, `"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":"search","arguments":"{\"query\": 1.0}"},{"type":"function_call_output","call_id":"c","output":"r"}]`},
		{openai.Responses, `"input":"x","tools":[{"type":"function","name":"search","description":"d","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}]`},
		{openai.Responses, `"input":[{"role":"user","content":"x"},{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"because"}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},{"role":"user","content":"y"}],"reasoning":{"effort":"low"}`},
		{openai.Messages, `"messages":[{"role":"user","content":"Hello"}]`},
		{openai.Messages, `"system":[{"type":"text","text":"Be terse."}],"messages":[{"role":"user","content":[{"type":"text","text":"Hi"},{"type":"text","text":"there"}]},{"role":"assistant","content":"Hello."},{"role":"user","content":"more"}]`},
		{openai.Messages, `"messages":[{"role":"user","content":"x"}],"tools":[{"name":"search","description":"d","input_schema":{"properties":{"q":{"type":["string","null"]}}}}]`},
		{openai.Messages, `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"search","input":{"q":"é","n":[1.50,1e22]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"},{"type":"text","text":"y"}]}]`},
	}
)

// probes gives the start-up conversations for a model, as requests.
func probes(model string) (list []*openai.Request) {
	name, _ := json.Marshal(model)
	fill := strings.NewReplacer("TOOLS", probeTools, "CALL", probeCall, "RESULT", probeResult, "PARTS", probeParts)
	for _, p := range probeBodies {
		limit := "max_tokens"
		if p.route == openai.Responses {
			limit = "max_output_tokens"
		}
		body := `{"model":` + string(name) + `,"` + limit + `":1,` + fill.Replace(p.body) + `}`
		if req, err := openai.Parse(p.route, []byte(body)); err == nil { // of any model's name
			list = append(list, req)
		}
	}
	return list
}
