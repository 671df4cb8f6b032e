package admin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestUnknownParametersAreRefused on every page, also where there is none at all.
func TestUnknownParametersAreRefused(t *testing.T) {
	o := Options{
		Handlers: map[string]http.Handler{
			"GET /one":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
			"POST /one": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
		},
		Query: map[string][]string{"GET /one": {"id", "n"}},
	}
	mux := must.Get(o.mux())(t)
	for request, want := range map[string]string{
		"GET /one?id=1&n=2": "", "GET /one": "", "POST /one": "", "GET /healthz": "", "GET /": "",
		"GET /one?ids=1":       `"ids" is not a parameter; this page has id, n`,
		"POST /one?id=1":       `"id" is not a parameter; this page has none`,
		"GET /one?id=1&id=2":   "id: is given 2 times",
		"GET /one?id=%zz":      "the query cannot be read",
		"GET /healthz?verbose": `"verbose" is not a parameter`, "GET /readyz?x=1": `"x"`, "GET /?x": `"x"`,
	} {
		method, target, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		if want == "" && w.Code != http.StatusOK || want != "" && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want)) {
			t.Errorf("%s: %d %s", request, w.Code, w.Body)
		}
	}
}
