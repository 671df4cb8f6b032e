package cli

import (
	"bufio"
	"bytes"
	"errors"
)

// ReadLine appends the next line without its end. Of a line longer than most bytes it
// drops the rest and sets long. It returns io.EOF with the last line, which may be
// empty.
func ReadLine(r *bufio.Reader, dst []byte, most int) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(dst)+len(part) > most+1 {
			long = true
		} else if !long {
			dst = append(dst, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(dst, []byte("\n")), long, err
	}
}
