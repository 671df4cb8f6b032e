package chat

import (
	"strconv"
	"strings"

	"warmroute/render/internal/jinja"
	"warmroute/render/openai"
)

// dialect has the differences between the vLLM versions that this package follows.
type dialect struct {
	// keepPartExtras: unknown keys of a content part (cache_control) reach the
	// template.
	keepPartExtras bool
	// stripBilling: vLLM drops the attribution line that Claude Code puts first in its
	// system text on every route, not only on /v1/messages.
	stripBilling bool
	// renameReasoning: vLLM reads a message's reasoning_content as reasoning.
	renameReasoning bool
	// lenientArguments: tool-call arguments that are not a JSON object become {}.
	lenientArguments bool
	// strictTools: a template sees the known fields of a tool alone, strict among them.
	strictTools bool
	// effortThinks: reasoning_effort also sets enable_thinking.
	effortThinks bool
	// developerFallback: developer messages become the system message if the template
	// does not handle that role.
	developerFallback bool
	// detection is the rule by which vLLM finds a template's content format.
	detection jinja.Detection
	// mergeItems: Responses items of one assistant turn become one message.
	mergeItems bool
	// responsesKwargs: /v1/responses reads chat_template_kwargs and the
	// server's defaults, and gives tools to the template unless a flag excludes them.
	responsesKwargs bool
	// anthropic32: /v1/messages reads inline system messages, thinking and effort.
	anthropic32 bool
	// saltedMessages: /v1/messages reads cache_salt.
	saltedMessages bool
	// sglang: the server is SGLang; no other field counts.
	sglang bool
}

var (
	dialect21 = dialect{}
	dialect32 = dialect{
		keepPartExtras: true, stripBilling: true, renameReasoning: true, lenientArguments: true,
		strictTools: true, effortThinks: true, developerFallback: true, detection: jinja.Detection32,
		mergeItems: true, responsesKwargs: true, anthropic32: true, saltedMessages: true,
	}
	dialect33 = func() dialect {
		d := dialect32
		d.detection = jinja.Detection33
		return d
	}()
)

// dialectsOf returns the dialects that a server of this version may have. "sglang 0.5.23" is
// a version of SGLang, of whose releases it knows one dialect. It takes
// versions before 0.21 and after 0.33 for these two (the router verifies them against a
// replica before it trusts them); a version between 0.21 and 0.32 may have either dialect,
// and an unknown one 0.33's, too, where that differs (New).
func dialectsOf(version string) []dialect {
	major, minor, ok := majorMinor(version)
	switch {
	case IsSGLang(version):
		return []dialect{dialectSGLang}
	case !ok:
		return []dialect{dialect32, dialect21}
	case major > 0 || minor >= 33:
		return []dialect{dialect33}
	case minor == 32:
		return []dialect{dialect32}
	case minor <= 21:
		return []dialect{dialect21}
	}
	return []dialect{dialect32, dialect21}
}

// ReadsSalt reports whether a server of this version may keep the prompts of a route
// apart by the body's cache_salt: a block's key may lack the salt only if the server
// certainly ignores it.
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
