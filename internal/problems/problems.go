// Package problems collects what is wrong with settings, so that a file's mistakes are known all at
// once: errors of the form "field: sentence", for which package config finds the place.
package problems

import (
	"errors"
	"fmt"
	"strings"
)

// List has the problems of a section. Its zero value has none. A dot before the first field is left
// out: there is no section around it.
type List []error

// Refuse adds the sentence about a field, if something is bad.
func (l *List) Refuse(bad bool, field, format string, args ...any) {
	if bad {
		*l = append(*l, fmt.Errorf("%s: %w", strings.TrimPrefix(field, "."), fmt.Errorf(format, args...)))
	}
}

// Add adds the errors that err joins, nil for none, each with before in front of it.
func (l *List) Add(before string, err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the join itself is wanted
		for _, e := range joined.Unwrap() {
			l.Add(before, e)
		}
	} else if err != nil {
		*l = append(*l, fmt.Errorf("%s%w", strings.TrimPrefix(before, "."), err))
	}
}

// Err joins the problems, nil if there are none.
func (l *List) Err() error { return errors.Join(*l...) }
