package chat

import (
	"errors"
	"strings"

	"warmroute/render/internal/jinja"
	"warmroute/render/work"
)

// ErrNotInProcess matches every *NotInProcess with errors.Is.
var ErrNotInProcess = errors.New("not rendered in process")

// Why is the reason for which this package does not render a request. The set is closed;
// the strings are metric labels.
type Why string

// The reasons.
const (
	RenderedInCode      Why = "rendered_in_code"     // vLLM has no template for this model, but code
	NoTemplate          Why = "no_template"          // neither the model nor the server's flags have one
	Multimodal          Why = "multimodal"           // media become placeholders that only vLLM computes
	Rejected            Why = "rejected"             // vLLM would answer 4xx
	UnknownShape        Why = "unknown_shape"        // perhaps valid, but vLLM may render it otherwise
	RequestTemplate     Why = "request_template"     // the request brings its own template
	ReservedKwargs      Why = "reserved_kwargs"      // chat_template_kwargs that reach into the renderer
	Truncation          Why = "truncation"           // vLLM cuts the prompt after tokenizing
	StoredState         Why = "stored_state"         // the prompt begins with a stored response
	ReusedTokens        Why = "reused_tokens"        // kv_transfer_params brings the ids
	TemplateFailed      Why = "template_failed"      // the template raised, or hit a limit
	VersionDiffers      Why = "version_differs"      // vLLM versions differ for this request and the replica's is unknown
	RenderDiffers       Why = "render_differs"       // the server renders it, but its /render otherwise
	TransformersDiffers Why = "transformers_differs" // transformers versions differ for this request
)

// NotInProcess is the error of a request that must go to a replica's /render.
type NotInProcess struct {
	Why Why
	// Says is vLLM's objection if Why is Rejected; "": unknown. It has no text of the
	// request.
	Says string
}

func (e *NotInProcess) Error() string { return ErrNotInProcess.Error() + ": " + string(e.Why) }

// Is makes errors.Is(err, ErrNotInProcess) true.
func (e *NotInProcess) Is(target error) bool { return target == ErrNotInProcess }

// templateError returns the error for a template that jinja does not render. The features
// that jinja refuses are a closed set of their own, with a Why for each:
// template_needs_filter_urlize. templateError returns a budget's error unchanged.
func templateError(err error) error {
	if work.Is(err) {
		return err
	}
	if feature := jinja.Refused(err); feature != "" {
		return refuse(Why("template_needs_" + strings.NewReplacer(" ", "_", ".", "_").Replace(feature)))
	}
	return refuse(TemplateFailed)
}

func refuse(why Why) error { return &NotInProcess{Why: why} }

// objection returns the error of a request that vLLM answers with a 4xx.
func objection(says string) error { return &NotInProcess{Why: Rejected, Says: says} }
