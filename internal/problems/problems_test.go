package problems

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

// TestList: one line for each problem, also for those that another section has joined.
func TestList(t *testing.T) {
	var inner, l List
	if l.Err() != nil {
		t.Error(l.Err())
	}
	inner.Refuse(true, ".a", "%d is too much", 7)
	inner.Refuse(false, "b", "is fine")
	inner.Refuse(true, "c", "%w", io.EOF)
	l.Add("section.", errors.Join(inner.Err(), fmt.Errorf("d: is missing")))
	l.Add("other.", nil)
	l.Add(".e: ", io.EOF)
	if got, want := l.Err().Error(), "section.a: 7 is too much\nsection.c: EOF\nsection.d: is missing\ne: EOF"; got != want || !errors.Is(l[1], io.EOF) {
		t.Errorf("%q, want %q", got, want)
	}
}
