package dashboard

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestPage: every file the page names is served, and nothing from elsewhere.
func TestPage(t *testing.T) {
	page := Page("/dashboard/")
	get := func(path string) (int, string, string) {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		body, _ := io.ReadAll(w.Result().Body)
		return w.Code, string(body), w.Header().Get("Content-Security-Policy")
	}
	code, html, policy := get("/dashboard/")
	if code != 200 || !strings.Contains(html, "<title>warmroute</title>") || !strings.Contains(policy, "default-src 'none'") {
		t.Fatalf("%d %q %s", code, policy, html)
	}
	if strings.Contains(policy, "unsafe") {
		t.Errorf("policy %s", policy)
	}
	_, script, _ := get("/dashboard/dashboard.js")
	for _, file := range []string{"dashboard.js", "dashboard.css", "uPlot.iife.min.js", "uPlot.min.css", "charts.js", "format.js", "history.js", "tables.js"} {
		if !strings.Contains(html, `"`+file+`"`) && !strings.Contains(script, `"./`+file+`"`) {
			t.Errorf("the page does not name %s", file)
		}
		if code, body, _ := get("/dashboard/" + file); code != 200 || strings.Contains(body, "https://") && !strings.HasPrefix(file, "uPlot") {
			t.Errorf("%s: %d", file, code)
		}
	}
	if code, _, _ := get("/dashboard/../doc.go"); code == 200 {
		t.Error("a file outside the page is served")
	}
}
