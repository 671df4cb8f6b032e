// Package models turns a model's folder and the flags its servers run with into
// what computing its token ids in process takes (tokens.Model).
//
// The invariant: a model is loaded completely or refused with a sentence that
// names what is missing or not supported. Loading does file I/O and takes up to
// a second: never on the request path.
package models
