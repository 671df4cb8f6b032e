package filter

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"warmroute/internal/decision"
	"warmroute/render/openai"
)

// priority returns the integer in a header's value, 0 if it has none.
func priority(value string) int {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 0
	}
	return n
}

// sessionOf returns what stands for the id of a session in a header, 0 for an empty one. The id may be
// long, and is kept as long as its session.
func sessionOf(id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return xxhash.Sum64(id)
}

func (st *stream) requestHeaders(h *extprocv3.HttpHeaders, out []*response) []*response {
	var method, path, kind string
	upgrade := false
	var trial trialRequest
	st.hint.request = headerSize{}
	for _, hv := range h.GetHeaders().GetHeaders() {
		st.hint.request.add(hv)
		switch hv.GetKey() {
		case ":method":
			method = headerValue(hv)
		case ":path":
			path = headerValue(hv)
		case "content-encoding":
			encoding := headerValue(hv)
			st.q.Encoded = encoding != "" && !strings.EqualFold(encoding, "identity")
		case "x-request-id":
			st.q.ID = decision.RequestID(headerValue(hv))
		case "content-type":
			kind = formType(hv)
		case "connection": // Envoy removes it from all but upgrades, which have no end of a body
			upgrade = true
		case "traceparent":
			if st.srv.router.o.Tracer != nil {
				st.q.Parent = sampledParent(hv)
			}
		case st.o.TenantHeader:
			st.q.Tenant = headerValue(hv)
			st.tenants++
		case st.o.PriorityHeader:
			st.q.Priority = priority(headerValue(hv))
			st.priorities++
		}
		if hv.GetKey() == st.o.Hold.Header { // which may be another one's, too
			st.q.Session = sessionOf(headerBytes(hv))
		}
		if t := &st.o.Trial; hv.GetKey() == t.ShareBy || hv.GetKey() == t.OptOut {
			t.read(&trial, hv.GetKey(), headerValue(hv))
		}
	}
	if st.o.AlwaysPick { // an ORIGINAL_DST cluster reaches no replica without the header
		st.hint.request = headerSize{}
	}
	st.q.Bare = !st.hint.request.fits(hintHeaders)
	trial.id = st.q.ID
	st.q.Withheld = st.o.Trial.withheld(&trial)
	if st.priorities > 1 {
		st.q.Priority = 0 // as with tenants
	}
	if st.tenants > 1 {
		st.q.Tenant = "" // behind a gateway that appends, a client could choose: the request then has no tenant
	}
	path, query, _ := strings.Cut(path, "?")
	for _, prefix := range st.o.PathPrefixes {
		if rest, ok := strings.CutPrefix(path, prefix); ok && strings.HasPrefix(rest, "/") {
			path = rest
			break
		}
	}
	st.q.Route, st.ours = openai.RouteOf(method, path)
	st.ours = st.ours && !upgrade
	st.q.Slash = strings.HasSuffix(path, "/")
	st.q.Pick = st.o.AlwaysPick
	st.ended = h.GetEndOfStream()
	switch {
	case method == "" || path == "" && method != http.MethodConnect:
		st.skip(decision.ReasonNoHeaders)
	case !st.ours && !st.ended && st.readsForm(kind):
		st.form = kind
	case !st.ours || st.ended:
		st.skip(decision.ReasonNotOurs)
		st.modelOfQuery(method, query)
	case st.overLimit:
		st.skip(decision.ReasonStreams)
	case st.mode == modev3.ProcessingMode_NONE, st.mode == modev3.ProcessingMode_STREAMED:
		st.skip(decision.ReasonMode)
	}
	switch {
	case st.passes() && st.mode == modev3.ProcessingMode_BUFFERED_PARTIAL:
		return append(out, withoutBody(st.answer(st.hint.ofHeaders)))
	case st.decided:
		return append(out, st.answer(st.hint.ofHeaders))
	case st.duplex():
		return out // held until the body is complete
	}
	return append(out, plainRequestHeaders)
}

// passes reports whether nothing after the headers is of use here.
func (st *stream) passes() bool {
	return st.decided && !st.ended && (promptless(st.d.Reason) || st.overLimit)
}

// leaves reports whether the stream ends with the answer to the headers: Envoy continues by
// itself and holds no body. In BUFFERED mode alone: in the streamed modes Envoy would fail the
// request, or send the bytes twice that came meanwhile. The mode is asked for first: where it
// streams, the end of the wait for a body may decide at the same time.
func (st *stream) leaves() bool { return st.mode == modev3.ProcessingMode_BUFFERED && st.passes() }

func (st *stream) responseHeaders(m *request) *response {
	st.answered, st.over = true, m.GetResponseHeaders().GetEndOfStream()
	st.status = responseStatus(m.GetResponseHeaders())
	if tried := servedEndpoint(m); tried != "" {
		if st.status < http.StatusInternalServerError { // else it may be Envoy that answers
			st.served = tried
		}
		if st.decided {
			st.srv.router.Tried(&st.d, st.q.ID, tried, st.status)
		}
	}
	if st.d.Reservation != nil {
		st.d.Reservation.Answered(st.status)
	}
	if st.o.ReasonHeader && st.decided {
		return reasonHeader(st.d.ForClients())
	}
	return plainResponseHeaders
}

// responseStatus returns the HTTP status in response headers, or 0.
func responseStatus(h *extprocv3.HttpHeaders) int {
	for _, hv := range h.GetHeaders().GetHeaders() {
		if hv.GetKey() == ":status" {
			n, _ := strconv.Atoi(headerValue(hv))
			return n
		}
	}
	return 0
}

// headerBytes returns a header's value, whichever field Envoy used for it.
func headerBytes(hv *corev3.HeaderValue) []byte {
	if raw := hv.GetRawValue(); len(raw) > 0 {
		return raw
	}
	return []byte(hv.GetValue())
}

func headerValue(hv *corev3.HeaderValue) string { return string(headerBytes(hv)) }
