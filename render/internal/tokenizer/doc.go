// Package tokenizer turns text into the token ids that a Hugging Face
// tokenizer.json describes: exactly those the reference (the Rust library
// `tokenizers` 0.23.3 under vLLM's Python) gives, or none.
//
// Invariant: a file is either understood completely or refused at load with a
// sentence naming what is not supported. There is no approximate mode.
// Handled are BPE models, byte-level and byte-fallback, with the normalizers,
// pre-tokenizers, added tokens and post-processors that published decoder
// models use; Unigram, WordPiece and WordLevel are refused.
//
// Encoding runs in the reference's order: added tokens that are not normalized
// cut the text (leftmost, then longest); each piece between them is normalized,
// cut at the normalized added tokens, split into words by the pre-tokenizers,
// and each word merged by rank. Pieces are independent of each other, which is
// what Store builds on.
//
// Units: token ids are uint32, offsets bytes. Texts should be valid UTF-8;
// each invalid byte counts as U+FFFD. The cost of any text is bounded by
// O(n log n).
//
// A Tokenizer and a Store are safe for concurrent use and never block on each
// other's readers. Encoding allocates nothing once its buffers are warm.
// Neither text nor ids appear in any error. Loading does file I/O and may take
// a second: keep it off the request path. There is no decoding.
package tokenizer
