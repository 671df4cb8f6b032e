// Package chattest generates requests on which an in-process renderer and a real
// vLLM can be compared: every route, tools and tool calls with nested arguments,
// content parts, unusual text and numbers, and the knobs that change a prompt.
//
// The generator is deterministic: the same seed gives the same bodies on every
// machine, so that answers captured from vLLM stay valid. It writes JSON itself,
// because key order, number literals and escapes are what is being tested. The
// capture command in this folder records a server's answers.
package chattest
