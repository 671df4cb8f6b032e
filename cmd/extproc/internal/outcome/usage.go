package outcome

import (
	aiv3 "github.com/envoyproxy/go-control-plane/envoy/data/ai/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// UsageState says what is known of an answer's usage: a closed set, used as a label.
type UsageState string

// The states.
const (
	UsageUnread   UsageState = ""         // the router did not ask for it, or the request was not answered with 200
	UsageNone     UsageState = "none"     // the answer has none, was cut, or is in a form that Envoy does not read
	UsageFailed   UsageState = "failed"   // Envoy could not read it, or its numbers contradict each other
	UsagePartial  UsageState = "partial"  // the prompt's tokens are known, the cached ones are not
	UsageComplete UsageState = "complete" // the prompt's tokens and the cached ones are known
)

// UsageStates lists the states of answers whose usage was asked for.
var UsageStates = [...]UsageState{UsageComplete, UsagePartial, UsageFailed, UsageNone}

// Usage is what a replica reported in its answer.
type Usage struct {
	State  UsageState
	Prompt int // tokens of the prompt, if State is partial or complete
	Cached int // of these, tokens found in the cache of the replica that computed the prompt, if State is complete
	Output int // tokens of the answer, if State is partial or complete; 0 = not known
}

// Known reports whether the usage has the prompt's tokens.
func (u Usage) Known() bool { return u.State == UsageComplete || u.State == UsagePartial }

// usageOf reads Envoy's record of an answer's usage, nil if there is none. asked says
// whether an answer without a record counts.
func usageOf(record *anypb.Any, asked bool) Usage {
	if record == nil {
		if asked {
			return Usage{State: UsageNone}
		}
		return Usage{}
	}
	var m aiv3.TokenUsage
	if err := record.UnmarshalTo(&m); err != nil || m.GetInputTokens() == nil {
		return Usage{State: UsageFailed}
	}
	prompt, cached := m.GetInputTokens().GetValue(), m.GetInputTokenDetails().GetCachedTokens()
	if m.GetExtractionStatus() == aiv3.TokenUsage_FAILED || prompt > mostTokens || cached.GetValue() > prompt {
		return Usage{State: UsageFailed}
	}
	output := int(min(m.GetOutputTokens().GetValue(), mostTokens))
	if cached == nil {
		return Usage{State: UsagePartial, Prompt: int(prompt), Output: output}
	}
	return Usage{State: UsageComplete, Prompt: int(prompt), Cached: int(cached.GetValue()), Output: output}
}
