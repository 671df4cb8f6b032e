package filter

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"unicode/utf8"
)

// Bounds of a form.
const (
	maxFormParts = 1000 // as vLLM's server reads at most
	maxModelName = 1024 // bytes

	maxUnread = 1 << 20 // bytes of a body whose model unreadModel reads
)

// formModel returns the model that a multipart form names, "" if it names none that can be
// read. The last one counts, and a form that is cut has the parts that are whole, as for
// vLLM. The work is linear in the body.
func formModel(contentType string, body []byte) (model string) {
	_, params, _ := mime.ParseMediaType(contentType)
	boundary := params["boundary"]
	if boundary == "" { // vLLM's server also reads one that lacks its quotes
		_, boundary, _ = strings.Cut(contentType, "boundary=")
		boundary, _, _ = strings.Cut(boundary, ";")
	}
	if boundary == "" {
		return ""
	}
	form := multipart.NewReader(bytes.NewReader(body), boundary)
	for range maxFormParts {
		part, err := form.NextRawPart()
		if err != nil {
			return model // the form has ended, or is cut behind a whole part
		}
		if part.FormName() != "model" {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxModelName+1))
		if err != nil {
			return ""
		}
		model = modelName(value)
	}
	return ""
}

// unreadModel returns the model of a body that is not read, such as one with half a surrogate
// pair: where replicas serve different models, only those of its own can answer as vLLM does, and
// Envoy does not read the model in it either. "" if the body is long, or names no known model.
func (r *Router) unreadModel(q *Query) string {
	var body struct{ Model string }
	if len(q.Body) > maxUnread || q.Encoded || !r.decider.Several() || json.Unmarshal(q.Body, &body) != nil {
		return ""
	}
	mv, _ := r.decider.Find(body.Model, q.Tenant)
	if mv == nil {
		return ""
	}
	return mv.Model().ID
}

// modelName returns a model's name from outside a JSON body, "" if it is none.
func modelName(name []byte) string {
	if len(name) > maxModelName || !utf8.Valid(name) {
		return ""
	}
	return string(name)
}
