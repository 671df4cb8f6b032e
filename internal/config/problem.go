package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Problem is one mistake in a file.
type Problem struct {
	File string
	Line int   // of the first field that it names; 0: the file does not have it
	Also []int // of the other fields
	Err  error // a sentence, mostly with the path of the field in front
}

// Error returns the problem in the form of compilers, "FILE:LINE: sentence".
func (p *Problem) Error() string {
	at := p.File
	if p.Line > 0 {
		at += fmt.Sprintf(":%d", p.Line)
	}
	text := at + ": " + p.Err.Error()
	switch n := len(p.Also); n {
	case 0:
	case 1:
		text += fmt.Sprintf(" (and line %d)", p.Also[0])
	default:
		text += fmt.Sprintf(" (and lines %s and %d)", strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Also[:n-1]), " ", ", "), "[]"), p.Also[n-1])
	}
	return text
}

// Unwrap returns the mistake without its place.
func (p *Problem) Unwrap() error { return p.Err }

// ordered joins problems in the order of their lines, those without one last.
func ordered(problems []*Problem) error {
	place := func(p *Problem) int {
		if p.Line == 0 {
			return math.MaxInt
		}
		return p.Line
	}
	slices.SortStableFunc(problems, func(a, b *Problem) int { return cmp.Compare(place(a), place(b)) })
	var all []error
	for _, p := range problems {
		all = append(all, p)
	}
	return errors.Join(all...)
}

// split takes joined errors apart.
func split(err error) (out []error) {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		out = append(out, split(e)...)
	}
	return out
}
