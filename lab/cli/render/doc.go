// Package render is the core of `lab render`: it applies chat templates to conversations
// in JSON lines, for people who debug a cache miss.
//
// A request line has `messages` and optionally `tools`, `documents`,
// `add_generation_prompt` and `chat_template_kwargs`; the answer is one line, {"text"} or
// {"error"}, in the order of the requests. It renders the line as transformers'
// apply_chat_template does (5.23); render.Server applies vLLM's changes to a request
// before that. It answers every line and stops only at the end of the input or if writing
// fails.
package render
