package openai

// Reason states why a body gives no hint. The set is closed; the strings are
// metric labels.
type Reason string

// The reasons.
const (
	UnreadableJSON Reason = "unreadable_json" // not one JSON value
	TooDeep        Reason = "too_deep"        // nested deeper than MaxDepth
	InvalidUTF8    Reason = "invalid_utf8"
	LoneSurrogate  Reason = "lone_surrogate" // \ud800 without its half
	DuplicateKey   Reason = "duplicate_key"  // of an object: readers differ on which one counts
	RepeatedField  Reason = "repeated_field" // the body has a field of Field twice
	TooWide        Reason = "too_wide"       // an object with more than MaxKeys keys, more than MaxPrompts prompts, or more work than the budget has
	NotObject      Reason = "not_object"     // valid JSON, but no object
	BadModel       Reason = "bad_model"      // not a string
	NoPrompt       Reason = "no_prompt"      // no messages, input or prompt
	BadPrompt      Reason = "bad_prompt"     // a prompt of the wrong type
	BadCacheSalt   Reason = "bad_cache_salt" // vLLM answers 400 to an empty one
)

// Reasons lists every reason, for metrics that show zeros.
var Reasons = [...]Reason{UnreadableJSON, TooDeep, InvalidUTF8, LoneSurrogate, DuplicateKey,
	RepeatedField, TooWide, NotObject, BadModel, NoPrompt, BadPrompt, BadCacheSalt}

// Error is the error of Parse. It never has a byte of the body.
type Error struct{ Reason Reason }

func (e *Error) Error() string { return "request body: " + string(e.Reason) }

// One value per reason: a refused body allocates nothing for its error.
var errorOf = func() map[Reason]*Error {
	m := make(map[Reason]*Error, len(Reasons))
	for _, r := range Reasons {
		m[r] = &Error{Reason: r}
	}
	return m
}()
