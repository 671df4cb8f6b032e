// Package chattest generates requests for comparisons of an in-process renderer with a
// real vLLM: every route, tools and tool calls with nested arguments, content parts,
// unusual text and numbers, and the parameters that change a prompt.
//
// The generator is deterministic: the same seed gives the same bodies on every machine,
// so that captured answers of vLLM stay valid. It writes JSON itself, because the tests
// are about key order, number literals and escapes. The capture command in this folder
// records a server's answers.
package chattest
