// Package jsontext reads JSON text where it lies: the ends of strings and numbers,
// what a string with escapes stands for, and the structure of a value as a flat
// list of nodes. It builds no values.
//
// The invariant: what it accepts is what Python's json accepts, less invalid UTF-8
// and lone surrogates, which it reports by their own [Problem]. Its readers add
// their own limits on depth, size and repeated keys.
//
// Positions are byte offsets. Nothing here keeps or changes what it reads; every
// function is safe for concurrent use.
package jsontext
