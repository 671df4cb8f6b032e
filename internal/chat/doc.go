// Package chat does to a request what vLLM does before tokenizing: it turns a
// chat, Responses or Messages body into the text that vLLM's chat template would
// give, so that the router's token ids are vLLM's.
//
// The rules are vLLM's own, read from versions 0.21 and 0.32 (protocol
// validation, chat_utils, the Responses and Anthropic conversions, the HF
// renderer and transformers' render_jinja_template) and checked against running
// servers of both; testdata holds what they answered. Where the two differ, a
// dialect says so, and for a version in between, or an unknown one, both
// dialects must give the same text.
//
// The invariant: the text returned is what vLLM renders, or there is no text.
// Whatever is not known to be equal is refused with a [*NotInProcess], whose Why
// is one of a closed set: what vLLM renders in code instead of a template, what
// it would answer with a 4xx, media, and shapes whose meaning depends on
// libraries beside vLLM. The caller then asks a replica's /render.
//
// A Renderer is immutable and safe for concurrent use. It does no I/O, and reads
// the clock only through the time its caller passes.
package chat
