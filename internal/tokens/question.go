package tokens

import (
	"bytes"
	"cmp"
	"encoding/json"

	"warmroute/render/openai"
)

// question is one HTTP request for the ids of one of a request's prompts or, with
// /render, of all.
type question struct {
	path  string
	body  []byte
	size  int   // of the request, for the pace; 0: the pace does not count
	limit int64 // of the answer's bytes; 0: answerLimit follows the body's size
}

// answerLimit returns how many bytes the answer may have.
func (q question) answerLimit() int64 {
	return cmp.Or(q.limit, min(maxAnswer, answerBytes+answerPerByte*int64(len(q.body))))
}

// maxPrompts bounds the prompts of one request that are sent to /tokenize, which
// takes one at a time.
const maxPrompts = 8

// renderQuestion returns a request to the route's own /render: the same code as
// serving, with the client's body. It copies the body, which the caller only lends.
func renderQuestion(req *openai.Request, size int) question {
	q := question{path: req.Route.String() + "/render", size: size}
	body := req.Body()
	if req.Multimodal {
		q.limit = maxAnswer
		// Hashes and positions are enough; the tensors would be megabytes. An
		// older server does not know the field and ignores it.
		if i := bytes.IndexByte(body, '{'); i >= 0 && !bytes.Contains(body, []byte(`"mm_payload"`)) {
			q.body = append(append(q.body, body[:i+1]...), `"mm_payload":"none",`...)
			q.body = append(q.body, body[i+1:]...)
			return q
		}
	}
	q.body = bytes.Clone(body)
	return q
}

// tokenizeQuestions returns requests to /tokenize, for bodies for which its answer
// is equal by construction: it runs the same code (0.21, 0.32) but reads fewer
// fields. nil: the answer may differ.
func tokenizeQuestions(req *openai.Request, model string, sglang bool) []question {
	switch {
	case sglang:
		return sglangQuestions(req, model)
	case req.Multimodal || uses(req, openai.FieldTruncatePromptTokens, openai.FieldTruncationSide, openai.FieldKVTransferParams,
		openai.FieldMMProcessorKwargs, openai.FieldMediaIOKwargs):
		return nil
	case req.Route == openai.Completions:
		return completionQuestions(req, model, openai.FieldAddSpecialTokens)
	case req.Route != openai.Chat:
		return nil // the conversions of the other routes are not behind /tokenize
	case uses(req, openai.FieldReasoningEffort, openai.FieldDocuments, openai.FieldChatTemplate):
		return nil // /tokenize does not read them, or only when trusted
	case string(req.Raw(openai.FieldToolChoice)) == `"none"` && uses(req, openai.FieldTools):
		return nil // a server flag decides whether the tools are shown
	case bytes.Contains(req.Raw(openai.FieldMessages), []byte("reasoning_content")):
		return nil // renamed by the chat route alone (0.32)
	}
	body := fieldsBody(req, model, openai.FieldMessages, openai.FieldTools, openai.FieldChatTemplateKwargs,
		openai.FieldAddGenerationPrompt, openai.FieldContinueFinalMessage, openai.FieldAddSpecialTokens)
	return []question{{path: "/tokenize", body: body}}
}

// sglangQuestions is tokenizeQuestions for SGLang, whose /tokenize reads what its chats read. It
// has switches of its own for formatting, which chats do not read.
func sglangQuestions(req *openai.Request, model string) []question {
	switch {
	case req.Multimodal || uses(req, openai.FieldChatTemplate, openai.FieldInputIDs):
		return nil
	case req.Route == openai.Completions:
		return completionQuestions(req, model)
	case req.Route != openai.Chat:
		return nil
	}
	return []question{{path: "/tokenize", body: fieldsBody(req, model, openai.FieldMessages, openai.FieldTools, openai.FieldToolChoice,
		openai.FieldReasoningEffort, openai.FieldReasoning, openai.FieldThinking, openai.FieldContinueFinalMessage, openai.FieldChatTemplateKwargs)}}
}

func completionQuestions(req *openai.Request, model string, switches ...openai.Field) []question {
	if len(req.TextPrompts) == 0 || len(req.TextPrompts) > maxPrompts || uses(req, openai.FieldSuffix, openai.FieldPromptEmbeds) {
		return nil
	}
	list := make([]question, len(req.TextPrompts))
	for i, text := range req.TextPrompts {
		body := fieldsBody(req, model, switches...)
		quoted, _ := json.Marshal(text)
		body = append(append(body[:len(body)-1], `,"prompt":`...), quoted...)
		list[i] = question{path: "/tokenize", body: append(body, '}')}
	}
	return list
}

// fieldsBody returns an object with the model and the fields that the request has.
func fieldsBody(req *openai.Request, model string, fields ...openai.Field) []byte {
	name, _ := json.Marshal(model)
	body := append([]byte(`{"model":`), name...)
	for _, f := range fields {
		if v := req.Raw(f); v != nil {
			body = append(body, `,"`+f.String()+`":`...)
			body = append(body, v...)
		}
	}
	return append(body, '}')
}
