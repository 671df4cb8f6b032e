// Package golden reads test vectors: JSON, or JSON lines, compressed with gzip. A file
// that it cannot read ends the test. It has no state.
package golden

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"iter"
	"os"
	"testing"
)

// open calls read with a file's text.
func open(t testing.TB, file string, read func(io.Reader) error) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := read(z); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Read decodes a file of one JSON value into v, a pointer.
func Read(t testing.TB, file string, v any) {
	t.Helper()
	open(t, file, func(r io.Reader) error { return json.NewDecoder(r).Decode(v) })
}

// longest bounds a line, in bytes.
const longest = 64 << 20

// Lines returns a file's lines without their ends. The caller may use a line until the
// next one.
func Lines(t testing.TB, file string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		t.Helper()
		open(t, file, func(r io.Reader) error {
			lines := bufio.NewScanner(r)
			lines.Buffer(nil, longest)
			for lines.Scan() {
				if !yield(lines.Bytes()) {
					return nil
				}
			}
			return lines.Err()
		})
	}
}
