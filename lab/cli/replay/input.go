package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"warmroute/internal/tracefile/tracereader"
)

// kind is a form of input.
type kind int

const (
	kindLog    kind = iota // requests as bodies or block ids
	kindTrace              // the router's trace file
	kindAccess             // Envoy's access log
)

// sniffed bounds the bytes of the first line by which an input is recognized.
const sniffed = 64 << 10

// open returns the inputs, decompressed where they are gzip, and the kind of the first.
func open(in []io.Reader) ([]io.Reader, kind, error) {
	if len(in) == 0 {
		return nil, 0, errors.New("there is no input")
	}
	out := make([]io.Reader, len(in))
	for i, r := range in {
		b := bufio.NewReaderSize(r, sniffed)
		if magic, _ := b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
			z, err := gzip.NewReader(b)
			if err != nil {
				return nil, 0, fmt.Errorf("gzip: %w", err)
			}
			b = bufio.NewReaderSize(z, sniffed)
		}
		out[i] = b
	}
	head, _ := out[0].(*bufio.Reader).Peek(sniffed) // shorter inputs are well
	for line := range bytes.Lines(head) {           // Envoy's own log may be before its access log
		if bytes.HasPrefix(line, []byte("{")) {
			return out, kindOf(line), nil
		}
	}
	return out, kindLog, nil
}

func kindOf(line []byte) kind {
	if tracereader.Begins(line) {
		return kindTrace
	}
	var e map[string]json.RawMessage
	if json.Unmarshal(line, &e) == nil && e["time"] != nil && e["status"] != nil && e["timestamp"] == nil {
		return kindAccess
	}
	return kindLog
}
