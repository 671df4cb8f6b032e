package chat

import (
	"errors"
	"strings"

	"warmroute/render/internal/jinja"
	"warmroute/render/work"
)

// ErrNotInProcess matches every *NotInProcess with errors.Is.
var ErrNotInProcess = errors.New("not rendered in process")

// Why is the reason why a request is not rendered here. The set is closed; the strings
// are metric labels.
type Why string

// Every reason there is.
const (
	RenderedInCode      Why = "rendered_in_code"     // vLLM has no template for this model, but code
	NoTemplate          Why = "no_template"          // neither the model nor the server's flags have one
	Multimodal          Why = "multimodal"           // media become placeholders that only vLLM computes
	Rejected            Why = "rejected"             // vLLM would answer 4xx
	UnknownShape        Why = "unknown_shape"        // valid perhaps, but not known to be rendered equally
	RequestTemplate     Why = "request_template"     // the request brings its own template
	ReservedKwargs      Why = "reserved_kwargs"      // chat_template_kwargs that reach into the renderer
	Truncation          Why = "truncation"           // the prompt is cut after tokenizing
	StoredState         Why = "stored_state"         // the prompt starts in a stored response
	ReusedTokens        Why = "reused_tokens"        // kv_transfer_params brings the ids
	TemplateFailed      Why = "template_failed"      // the template raised, or hit a limit
	VersionDiffers      Why = "version_differs"      // vLLM versions differ here and the replica's is not known
	TransformersDiffers Why = "transformers_differs" // transformers versions differ here
)

// NotInProcess is the error of a request that must go to a replica's /render.
type NotInProcess struct {
	Why Why
	// Says is what vLLM objects to when Why is Rejected, as far as it is known
	// here. It holds no text of the request.
	Says string
}

func (e *NotInProcess) Error() string { return ErrNotInProcess.Error() + ": " + string(e.Why) }

// Is makes errors.Is(err, ErrNotInProcess) true.
func (e *NotInProcess) Is(target error) bool { return target == ErrNotInProcess }

// templateError is the reason for which a template is not rendered here. The
// features that jinja refuses are a closed set of their own, counted one by one:
// template_needs_filter_urlize.
// Where the budget has ended, that is the error.
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

// objection is the error of a request that vLLM answers with a 4xx.
func objection(says string) error { return &NotInProcess{Why: Rejected, Says: says} }
