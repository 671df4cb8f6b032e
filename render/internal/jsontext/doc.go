// Package jsontext reads JSON text in place: the ends of strings and numbers, the text
// of strings with escapes, and the structure of a value as a flat list of nodes. It
// builds no values.
//
// The invariant: the package accepts the texts that Python's json accepts, except
// invalid UTF-8 and lone surrogates, for which it returns a [Problem] of their own. Its
// callers add limits on depth, size and repeated keys.
//
// Positions are byte offsets. No function keeps or changes the text that it reads;
// every function is safe for concurrent use.
package jsontext
