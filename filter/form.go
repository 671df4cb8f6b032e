package filter

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
)

// Where replicas serve different models, Envoy's routes go by the model that a request names.
// Envoy reads it in JSON alone, so the router reads it where requests without a prompt have it
// elsewhere: in forms (transcriptions) and in the query (upgraded connections).

const formPrefix = "multipart/form-data"

// formType returns a content-type header's value if it is a form's, else "". It allocates
// nothing for the others.
func formType(hv *corev3.HeaderValue) string {
	raw := headerBytes(hv)
	if len(raw) < len(formPrefix) || !bytes.EqualFold(raw[:len(formPrefix)], []byte(formPrefix)) {
		return ""
	}
	return string(raw)
}

// readsForm reports whether the body of a request of a content type is waited for, to read
// the model in it. In BUFFERED_PARTIAL mode Envoy may send the headers on before it chooses
// the route again.
func (st *stream) readsForm(kind string) bool {
	return kind != "" && !st.overLimit && (st.duplex() || st.mode == modev3.ProcessingMode_BUFFERED) && st.srv.router.decider.Several()
}

// modelOfQuery takes the model of a request without a prompt from its query, where no body
// names another.
func (st *stream) modelOfQuery(method, query string) {
	if method != http.MethodGet && method != http.MethodConnect || !strings.Contains(query, "model=") || !st.srv.router.decider.Several() {
		return
	}
	if values, err := url.ParseQuery(query); err == nil {
		st.d.Model = modelName([]byte(values.Get("model")))
	}
}
