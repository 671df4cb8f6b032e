package testenv

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
)

// Reply is an answer, read to its end.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Post posts JSON with headers, pairs of a name and a value, and reads the answer to its end.
// body is encoded unless it is a []byte.
func Post(t testing.TB, url string, body any, headers ...string) *Reply {
	t.Helper()
	raw, encoded := body.([]byte)
	if !encoded {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := &Reply{Status: resp.StatusCode, Header: resp.Header}
	if r.Body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return r
}

// Into expects the status 200, and decodes the body into to unless that is nil.
func (r *Reply) Into(t testing.TB, to any) {
	t.Helper()
	if r.Status != http.StatusOK {
		t.Fatalf("status %d: %.300s", r.Status, r.Body)
	}
	if to == nil {
		return
	}
	if err := json.Unmarshal(r.Body, to); err != nil {
		t.Fatalf("%v: %.300s", err, r.Body)
	}
}
