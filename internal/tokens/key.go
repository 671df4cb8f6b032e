package tokens

import (
	"hash/maphash"
	"slices"

	"warmroute/render"
	"warmroute/render/openai"
)

// key stands for a question to a replica. It is a keyed hash, so that it reveals
// nothing of the text, and 128 bits, so that two texts never share one.
type key struct{ hi, lo uint64 }

// keyer makes keys; its seeds never leave the process.
type keyer struct{ hi, lo maphash.Seed }

func newKeyer() keyer { return keyer{maphash.MakeSeed(), maphash.MakeSeed()} }

// deciding are the fields that decide a prompt's ids.
var deciding = []openai.Field{
	openai.FieldMessages, openai.FieldSystem, openai.FieldInput, openai.FieldInstructions, openai.FieldPrompt,
	openai.FieldSuffix, openai.FieldPromptEmbeds, openai.FieldTools, openai.FieldToolChoice, openai.FieldChatTemplate,
	openai.FieldChatTemplateKwargs, openai.FieldReasoningEffort, openai.FieldReasoning, openai.FieldThinking,
	openai.FieldOutputConfig, openai.FieldDocuments, openai.FieldAddGenerationPrompt, openai.FieldContinueFinalMessage,
	openai.FieldAddSpecialTokens, openai.FieldTruncatePromptTokens, openai.FieldTruncationSide, openai.FieldTruncation,
	openai.FieldMMProcessorKwargs, openai.FieldMediaIOKwargs, openai.FieldKVTransferParams,
	openai.FieldPreviousResponseID, openai.FieldPreviousInputMessages,
}

// key returns a request's key, another one for each tenant: tenants' replicas may
// differ, and the time to an answer must reveal nothing of another tenant's
// requests.
func (k keyer) key(req *openai.Request, served Served) key {
	return key{k.sum(k.hi, req, served), k.sum(k.lo, req, served)}
}

func (k keyer) sum(seed maphash.Seed, req *openai.Request, served Served) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	part := func(tag byte, length int) {
		h.WriteByte(tag)
		for range 4 {
			h.WriteByte(byte(length))
			length >>= 8
		}
	}
	part(byte(req.Route), len(served.Model))
	h.WriteString(served.Model)
	part(0, len(served.Tenant))
	h.WriteString(served.Tenant)
	for _, f := range deciding {
		if v := req.Raw(f); v != nil {
			part(byte(f), len(v))
			h.Write(v)
		}
	}
	return h.Sum64()
}

// uses reports whether the body has any of the fields.
func uses(req *openai.Request, fields ...openai.Field) bool {
	return slices.ContainsFunc(fields, func(f openai.Field) bool { return req.Raw(f) != nil })
}

// MessagesReadSalt reports whether a server of a vLLM release reads the cache_salt
// of /v1/messages, or may do so.
func MessagesReadSalt(version string) bool { return render.ReadsSalt(version, openai.Messages) }
