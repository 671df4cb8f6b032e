package jsonlines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line in bytes, with space for a few million token ids.
const MaxLine = 64 << 20

// Each calls answer at every line of in that is not blank, with its number from 1 on
// and without its end, and flushes out whenever it would wait for input. It drops the rest
// of a line longer than MaxLine and sets long. It returns the first error of in or out;
// answer may ignore out's errors.
func Each(in io.Reader, out *bufio.Writer, answer func(n int, line []byte, long bool)) error {
	r := bufio.NewReaderSize(in, 1<<16)
	var line []byte
	for n := 1; ; n++ {
		var long bool
		var err error
		line, long, err = readLine(r, line[:0])
		last := errors.Is(err, io.EOF)
		if err != nil && !last {
			return errors.Join(fmt.Errorf("read line %d: %w", n, err), out.Flush())
		}
		if long || len(bytes.TrimSpace(line)) > 0 {
			answer(n, line, long)
		}
		if last || r.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		if last {
			return nil
		}
	}
}

// readLine appends the next line without its end. Of a line longer than MaxLine it drops
// the rest and sets long. It returns io.EOF with the last line, which may be empty.
func readLine(r *bufio.Reader, dst []byte) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(dst)+len(part) > MaxLine+1 {
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
