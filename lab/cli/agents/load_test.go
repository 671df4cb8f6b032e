package agents_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"warmroute/lab/cli/agents"
)

// TestLoad: sessions are read from JSON, compressed or not, and what is no session is refused.
func TestLoad(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	const text = `[[[1000, 20, 0, 0.5], [1100, 0, 960, 12]], []]`
	if _, err := z.Write([]byte(text)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	load := func(content string) ([][]agents.Turn, error) {
		path := filepath.Join(t.TempDir(), "sessions")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return agents.Load(path)
	}
	want := [][]agents.Turn{{{Input: 1000, Output: 20, After: 0.5}, {Input: 1100, Output: 1, Same: 960, After: 12}}}
	for _, content := range []string{text, zipped.String()} {
		if all, err := load(content); err != nil || !reflect.DeepEqual(all, want) {
			t.Errorf("%+v (%v), want %+v", all, err, want)
		}
	}
	for content, why := range map[string]string{
		"": "EOF", "{}": "cannot unmarshal", "[[]]": "has no sessions", "\x1f\x8bx": "EOF",
		"[[[0, 1, 0, 0]]]": "lengths must be positive", "[[[9, 1, 10, 0]]]": "no longer than the input", "[[[1e18, 1, 0, 0]]]": "lengths", "[[[9, -1, 0, 0]]]": "lengths", "[[[9, 1, 0, -1]]]": "lengths",
	} {
		if _, err := load(content); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", content, err, why)
		}
	}
}
