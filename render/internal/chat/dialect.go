package chat

import (
	"strconv"
	"strings"

	"warmroute/render/openai"
)

// dialect holds what differs between the vLLM versions that this package follows.
type dialect struct {
	// keepPartExtras: unknown keys of a content part (cache_control) reach the
	// template.
	keepPartExtras bool
	// stripBilling: the attribution line Claude Code puts first in its system
	// text is dropped on every route, not only on /v1/messages.
	stripBilling bool
	// renameReasoning: a message's reasoning_content is read as reasoning.
	renameReasoning bool
	// lenientArguments: tool-call arguments that are not a JSON object become {}.
	lenientArguments bool
	// strictTools: a tool shows its known fields only, strict among them.
	strictTools bool
	// effortThinks: reasoning_effort also sets enable_thinking.
	effortThinks bool
	// developerFallback: developer messages become the system message when the
	// template does not handle that role.
	developerFallback bool
	// macroContent: content-format detection looks through macros.
	macroContent bool
	// mergeItems: Responses items of one assistant turn become one message.
	mergeItems bool
	// responsesKwargs: /v1/responses reads chat_template_kwargs and the
	// server's defaults, and gives tools to the template unless a flag excludes them.
	responsesKwargs bool
	// anthropic32: system messages inside /v1/messages, thinking and effort.
	anthropic32 bool
	// saltedMessages: /v1/messages reads cache_salt.
	saltedMessages bool
}

var (
	dialect21 = dialect{}
	dialect32 = dialect{
		keepPartExtras: true, stripBilling: true, renameReasoning: true, lenientArguments: true,
		strictTools: true, effortThinks: true, developerFallback: true, macroContent: true,
		mergeItems: true, responsesKwargs: true, anthropic32: true, saltedMessages: true,
	}
)

// dialectsOf lists the dialects that a server of this version may have. Versions
// before 0.21 and after 0.32 are taken for their neighbours (and verified
// against a replica before they are trusted); between them it may be either.
func dialectsOf(version string) []dialect {
	major, minor, ok := majorMinor(version)
	switch {
	case !ok:
		return []dialect{dialect32, dialect21}
	case major > 0 || minor >= 32:
		return []dialect{dialect32}
	case minor <= 21:
		return []dialect{dialect21}
	}
	return []dialect{dialect32, dialect21}
}

// ReadsSalt reports whether a server of this version keeps the prompts of a
// route apart by the body's cache_salt, or may do so: only what is known not to
// be read may be left out of a block's key.
func ReadsSalt(version string, route openai.Route) bool {
	if route != openai.Messages {
		return true
	}
	for _, d := range dialectsOf(version) {
		if d.saltedMessages {
			return true
		}
	}
	return false
}

// majorMinor reads the first two numbers of a version.
func majorMinor(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	major, errA := strconv.Atoi(first)
	minor, errB := strconv.Atoi(second)
	return major, minor, errA == nil && errB == nil
}
