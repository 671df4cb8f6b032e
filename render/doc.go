// Package render computes the token ids of OpenAI requests exactly as vLLM does:
// from a request's body and a model's folder to the ids of each prompt, or to the
// reason why there are none.
//
// There are only a few types. Open reads a Model from a folder. A Model's Server
// computes prompts as one release of vLLM does: Tokenize takes a path and a body, and
// TokenizeInto takes a work.Budget, too. A Refusal names why vLLM may serve a request
// whose ids are not computed here. A Job is one such computation for callers that read
// bodies (package openai) and choose renderers (package chat) themselves.
//
// The invariant: ids are vLLM's, or there are none. No approximation is ever returned.
//
// Units: token ids are uint32, sizes are bytes, contexts are tokens. A Model and a
// Server are safe for concurrent use. Neither a request's text nor its ids appear in
// any error.
package render
