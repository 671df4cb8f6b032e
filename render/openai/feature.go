package openai

import "strings"

// Features is a set of the parts of a request that decide how vLLM renders it. The
// router verifies, trusts and demotes each feature by itself.
type Features uint16

// The features. A request has its route's and any of the others.
const (
	FeatureChat Features = 1 << iota
	FeatureCompletions
	FeatureResponses
	FeatureMessages
	FeatureTools     // tools in the template
	FeatureToolCalls // tool calls in the history
	FeatureParts     // content as a list of parts
	FeatureKwargs    // chat_template_kwargs
	FeatureReasoning // reasoning effort, or reasoning in the history
	FeatureContinue  // the answer continues the last message
	FeatureDocuments
	FeatureDeveloper // developer role
	numFeatures      = iota
)

var featureNames = [numFeatures]string{"chat", "completions", "responses", "messages", "tools", "tool_calls",
	"parts", "kwargs", "reasoning", "continue", "documents", "developer"}

// AllFeatures returns a set of one for each feature.
func AllFeatures() []Features {
	all := make([]Features, numFeatures)
	for i := range all {
		all[i] = 1 << i
	}
	return all
}

// String joins the features' names with "+"; the names are metric labels.
func (f Features) String() string {
	var names []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// Feature returns the feature of the route itself.
func (r Route) Feature() Features {
	switch r {
	case Chat:
		return FeatureChat
	case Completions:
		return FeatureCompletions
	case Responses:
		return FeatureResponses
	case Messages:
		return FeatureMessages
	}
	return 0
}
