package hash

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"warmroute/internal/cli/jsonlines"
	"warmroute/prefixhash"
)

// ErrBadLine is the error of Run if it answered at least one line with an error; the
// program then exits with 1.
var ErrBadLine = errors.New("some lines could not be hashed")

// Run answers every line of in on out, in order, and flushes whenever it would
// wait for input. It returns ErrBadLine, or the first error of in or out.
func Run(in io.Reader, out io.Writer) error {
	w := bufio.NewWriter(out)
	var answer []byte
	bad := false
	if err := jsonlines.Each(in, w, func(n int, line []byte, long bool) {
		var failed error
		if answer, failed = respond(answer[:0], line, long); failed != nil {
			bad = true
			answer = appendError(answer[:0], n, failed)
		}
		_, _ = w.Write(answer) // the writer keeps its first error for the flush
	}); err != nil {
		return err
	}
	if bad {
		return ErrBadLine
	}
	return nil
}

// respond appends the answer to one line.
func respond(dst, line []byte, long bool) ([]byte, error) {
	if long {
		return dst, fmt.Errorf("longer than %d bytes", jsonlines.MaxLine)
	}
	q, err := parse(line)
	if err != nil {
		return dst, err
	}
	root, _ := q.hasher.Root()
	dst = append(dst, `{"hashes":[`...)
	for i, d := range q.hasher.AppendDigests(nil, prefixhash.Position{Parent: root}, q.tokens, q.blockSize, q.mixed) {
		dst = appendHash(dst, i, d)
	}
	return append(dst, "]}\n"...), nil
}

func appendHash(dst []byte, i int, d prefixhash.Digest) []byte {
	if i > 0 {
		dst = append(dst, ',')
	}
	return append(append(append(dst, '"'), d.String()...), '"')
}

func appendError(dst []byte, line int, failed error) []byte {
	text, err := json.Marshal(failed.Error())
	if err != nil { // a string always marshals
		text = []byte(`"unknown"`)
	}
	dst = strconv.AppendInt(append(dst, `{"line":`...), int64(line), 10)
	return append(append(append(dst, `,"error":`...), text...), "}\n"...)
}
