package chattest

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"warmroute/render/openai"
)

func TestGenerate(t *testing.T) {
	cases := Generate(1, 400, `a "model"`)
	if !reflect.DeepEqual(cases, Generate(1, 400, `a "model"`)) {
		t.Error("the same seed must give the same requests")
	}
	if reflect.DeepEqual(cases[:10], Generate(2, 10, `a "model"`)) {
		t.Error("another seed must give other requests")
	}
	routes := map[openai.Route]int{}
	for _, c := range cases {
		routes[c.Route]++
		req, err := openai.Parse(c.Route, []byte(c.Body))
		if err != nil || !json.Valid([]byte(c.Body)) {
			t.Fatalf("%v: %s", err, c.Body)
		}
		if req.Model != `a "model"` {
			t.Fatalf("model %q", req.Model)
		}
	}
	for _, r := range openai.Routes {
		if routes[r] < 40 && r != openai.Generate { // it has token ids in place of a chat or text
			t.Errorf("%s: %d of 400", r, routes[r])
		}
	}
}

func TestVectorsRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.json.gz")
	want := Vectors{Version: "0.32.0", Vectors: []Vector{{Path: "/v1/completions", Body: "{}", IDs: [][]uint32{{1}, {2, 3}}}, {Path: "x", Body: "y", Status: 400}}}
	if err := Write(file, want); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := Read(file + "x"); err == nil {
		t.Error("a missing file must be an error")
	}
}

func TestGenerateCoded(t *testing.T) {
	cases := GenerateCoded(1, 400, "m", "<s>")
	if !reflect.DeepEqual(cases, GenerateCoded(1, 400, "m", "<s>")) {
		t.Error("the same seed must give the same requests")
	}
	routes := map[openai.Route]int{}
	for _, c := range cases {
		routes[c.Route]++
		if _, err := openai.Parse(c.Route, []byte(c.Body)); err != nil || !json.Valid([]byte(c.Body)) {
			t.Fatalf("%v: %s", err, c.Body)
		}
	}
	for _, r := range openai.Routes {
		if routes[r] < 40 && r != openai.Generate { // it has token ids in place of a chat or text
			t.Errorf("%s: %d of 400", r, routes[r])
		}
	}
}
