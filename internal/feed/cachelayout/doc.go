// Package cachelayout reads from a model's config.json what its layers keep in the KV
// cache: their kinds, and the chunk of chunked attention. Events of vLLM name the kinds,
// but no chunk; events of SGLang name neither.
//
// Invariant: only models whose code was read have a Layout; for any other the error is
// ErrUnknown. A Layout has the kinds that models of this type have, of which one may lack some,
// without a draft model's layers and with the servers' own defaults. It is immutable.
package cachelayout
