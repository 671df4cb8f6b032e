// Package render is the core of `lab render`: chat templates applied to
// conversations read as JSON lines, for people who debug a cache miss.
//
// A request line has `messages` and optionally `tools`, `documents`,
// `add_generation_prompt` and `chat_template_kwargs`; the answer is one line,
// {"text"} or {"error"}, in the order of the requests. It renders what it is
// given as transformers' apply_chat_template does (5.23); what vLLM does to a
// request before that is a render.Server's. It answers every line and stops only
// at the end of the input or when writing fails.
package render
