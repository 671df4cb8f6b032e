// Package tokenizer encodes text by a Hugging Face tokenizer.json: its token ids are
// those of the reference (the Rust library `tokenizers` 0.23.3 under vLLM's Python), or
// there are none.
//
// Invariant: Load either understands a file completely or refuses it with a sentence
// that names the unsupported part. There is no approximate mode. It understands BPE
// models, byte-level and byte-fallback, with the normalizers, pre-tokenizers, added
// tokens and post-processors that published decoder models use; it refuses Unigram,
// WordPiece and WordLevel.
//
// Encoding runs in the reference's order: added tokens that are not normalized cut the
// text (leftmost, then longest); each piece between them is normalized, cut at the
// normalized added tokens and split into words by the pre-tokenizers, and the model
// merges each word by rank. Pieces are independent of each other; Store depends on that.
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
