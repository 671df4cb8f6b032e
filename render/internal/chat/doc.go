// Package chat normalizes requests as vLLM does before it tokenizes them: it turns a
// chat, Responses or Messages body into the text that vLLM's chat template renders,
// so that the router's token ids are vLLM's.
//
// The rules are vLLM's own, read from versions 0.21, 0.32 and 0.33 (protocol
// validation, chat_utils, the Responses and Anthropic conversions, the HF
// renderer and transformers' render_jinja_template) and checked against running
// servers of the first two; testdata holds their answers. Where they differ, a dialect
// has a field for it. For a version in between, or an unknown one, all dialects must
// give the same text.
//
// The invariant: the text is vLLM's, or there is no text. The package refuses a request
// whose text may differ from vLLM's with a [*NotInProcess], whose Why is one of a closed
// set: prompts that vLLM renders in code that this package lacks, requests that vLLM
// answers with a 4xx, media, and forms whose meaning depends on libraries other than
// vLLM. The caller then calls a replica's /render.
//
// A Renderer is immutable and safe for concurrent use. It does no I/O, and reads
// the clock only through the time its caller passes.
package chat
