// Package manifest reads the Kubernetes objects of the examples, for tests. It
// has no state.
package manifest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Object is a Kubernetes object.
type Object = map[string]any

// At returns the value at a path of keys and indexes, or nil.
func At(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(Object)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// Decode calls f for each document of a file.
func Decode(t testing.TB, file string, f func(*yaml.Decoder) error) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		if err := f(d); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

// Objects returns the objects of a file.
func Objects(t testing.TB, file string) (out []Object) {
	t.Helper()
	Decode(t, file, func(d *yaml.Decoder) error {
		var o Object
		if err := d.Decode(&o); err != nil {
			return err
		}
		out = append(out, o)
		return nil
	})
	return out
}
