// Package sglang knows what an SGLang server says about itself, and what follows from it for
// the predictions of its hits.
//
// Invariant: settings are exact only for what SGLang's events show. For the rest, the match of
// full attention is an upper bound, and the settings say why in one sentence. The package does
// no I/O. Units are tokens. A Server is immutable once it is decoded.
package sglang
