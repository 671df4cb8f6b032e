// Package golden reads vectors that tests compare with: JSON, or JSON lines,
// compressed with gzip. What cannot be read ends the test. It has no state.
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

// open hands a file's text to read.
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

// Lines are a file's lines without their ends. A line is its caller's until the
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
