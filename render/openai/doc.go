// Package openai reads the fields that a router needs from a request body in the
// OpenAI (or Anthropic) format, in one pass over the raw bytes.
//
// It never re-marshals and never changes the body: it returns numbers, short
// strings and spans that point into the body; only messages for rendering become
// a tree ([Request.Values]). A body that it cannot read as vLLM does is not an
// error for the client: the caller routes the request without a hint, and has the
// reason.
//
// JSON is read as Python's json module reads it (NaN and Infinity are numbers,
// control characters in strings are not allowed), and more strictly in three
// places, because their meaning depends on the reader: duplicate keys, lone
// surrogates and invalid UTF-8 are refused, each with its own reason.
//
// A Request is immutable once parsed and safe for concurrent readers. It borrows
// the body: nobody may use it after the body's bytes change. Package render
// decides the meaning of a body to a chat template.
//
// The package is public because a router reads each body once: it decides by the model,
// the salt and the routing fields, and gives the same Request to render's
// Server.Prompts. The features by which it trusts ids are properties of the request, too
// ([Features]).
package openai
