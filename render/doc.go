// Package render computes the token ids of OpenAI requests exactly as vLLM does:
// from a request's body and a model's folder to the ids of each prompt, or to the
// reason why there are none.
//
// There are few types. Open reads a Model from a folder, with the Flags of its servers.
// Its Server computes prompts as one release of vLLM does: Tokenize takes a path and a
// body, TokenizeInto a work.Budget, too, and Prompts a Job for callers that read bodies
// themselves (package openai). A Refusal is the error of a request that vLLM may serve,
// but whose ids this package does not compute. The error of a request that vLLM itself
// refuses matches ErrRejected. A Template only renders conversations.
//
// Three packages are public. A router reads each body once, for its model, salt and
// routing fields, and gives the same openai.Request to Prompts; work.Budget bounds that
// reading as well as this package's work. Packages under testkit are for the tests of this
// repository, and public because those of the other modules import them.
//
// The invariant: ids are vLLM's, or there are none. The package never approximates.
// Tests compare the ids with vLLM 0.21 and 0.32; Model.Server has the rule for other
// releases.
//
// Units: token ids are uint32, sizes are bytes, contexts are tokens. A Model, a Server and
// a Template are safe for concurrent use. A request's text and its ids are in no error,
// except those of a Template.
package render
