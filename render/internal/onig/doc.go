// Package onig matches the regular expressions of tokenizer.json files as
// their reference does: Oniguruma, Ruby syntax, UTF-8, Unicode 16. It
// compiles the part of the syntax that pre-tokenizers use and refuses the
// rest with a sentence naming it; it never guesses.
//
// Matching is by backtracking, first alternative first, as Oniguruma's is.
// The cost is bounded on any text: the few patterns that would go back over
// the same ground switch to remembering what failed, which makes the whole
// run over a text O(pattern × text). For that the pattern must be free of
// back references and its look-arounds of bounded length; others are refused.
//
// A Regexp is immutable and safe for concurrent use; a Machine is one
// goroutine's memory for matching. Texts must be valid UTF-8; offsets are
// bytes.
package onig
