package openai

import "strings"

// Route is one of vLLM's paths that take prompts.
type Route uint8

// The routes whose prompts vLLM's prefix cache serves.
const (
	Chat        Route = iota + 1 // POST /v1/chat/completions
	Completions                  // POST /v1/completions
	Responses                    // POST /v1/responses
	Messages                     // POST /v1/messages
	Generate                     // POST /inference/v1/generate: token ids (vLLM 0.33)
)

// Routes lists every route, in a fixed order.
var Routes = [...]Route{Chat, Completions, Responses, Messages, Generate}

// String returns the route's path.
func (r Route) String() string {
	switch r {
	case Chat:
		return "/v1/chat/completions"
	case Completions:
		return "/v1/completions"
	case Responses:
		return "/v1/responses"
	case Messages:
		return "/v1/messages"
	case Generate:
		return "/inference/v1/generate"
	}
	return "unknown"
}

// ids returns the field that may hold the route's prompt as one list of token ids.
func (r Route) ids() Field {
	switch r {
	case Completions:
		return FieldPrompt
	case Generate:
		return FieldTokenIDs
	}
	return numFields
}

// list returns the field of the route's messages; routes of token ids have none.
func (r Route) list() Field {
	switch r {
	case Chat, Messages:
		return FieldMessages
	case Responses:
		return FieldInput
	}
	return numFields
}

// RouteOf returns the route of a request line. It ignores the query string and a slash at
// the end. Other methods than POST and other paths (a response's own URL, a token count, a
// batch of chats) have no route.
func RouteOf(method, path string) (Route, bool) {
	if method != "POST" {
		return 0, false
	}
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "/")
	for _, r := range Routes {
		if path == r.String() {
			return r, true
		}
	}
	return 0, false
}
