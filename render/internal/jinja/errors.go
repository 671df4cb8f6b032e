package jinja

import (
	"errors"
	"fmt"
)

// These are the kinds of errors, matched with errors.Is. A *Error wraps one of them.
var (
	ErrSyntax      = errors.New("the template does not compile")
	ErrRaised      = errors.New("the template raised an exception")             // raise_exception()
	ErrUndefined   = errors.New("an undefined value was used")                  // UndefinedError
	ErrSecurity    = errors.New("the sandbox forbids this access")              // SecurityError
	ErrRuntime     = errors.New("an operation failed")                          // TypeError, ValueError, KeyError, ...
	ErrLimit       = errors.New("a render limit was reached")                   // depth, output or budget
	ErrUnsupported = errors.New("the template needs what is not rendered here") // a Feature
	ErrInternal    = errors.New("the template engine failed internally")        // a bug here, never Python's error
)

// Error is the error of Compile and Render. Error() never quotes values, so it may be
// logged; Detail may quote the request.
type Error struct {
	Kind   error
	Line   int    // of the template, 1-based; 0 when unknown
	Detail string // Python's message or close to it
	// Feature names a refused feature, one of a closed set (refuse); only with
	// ErrUnsupported.
	Feature string
	stopped error // work's error, if the budget has ended
}

func (e *Error) Error() string {
	if e.Feature != "" {
		return fmt.Sprintf("%v: %s", e.Kind, e.Feature)
	}
	if e.Line > 0 {
		return fmt.Sprintf("%v (template line %d)", e.Kind, e.Line)
	}
	return e.Kind.Error()
}

func (e *Error) Unwrap() []error {
	if e.stopped != nil {
		return []error{e.Kind, e.stopped}
	}
	return []error{e.Kind}
}

// fail raises an error inside Compile and Render, which recover it.
func fail(kind error, format string, args ...any) {
	panic(&Error{Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

// refuse raises ErrUnsupported for a feature. The name is a constant, because it is
// counted and may be logged.
func refuse(feature string) {
	panic(&Error{Kind: ErrUnsupported, Detail: feature, Feature: feature})
}

// Refused returns the feature for which err refuses a template, "" for other errors.
func Refused(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Feature
	}
	return ""
}

// typeError and valueError raise the Python exceptions of these names. Templates cannot
// distinguish them; the int and float filters catch both.
func typeError(format string, args ...any) { fail(ErrRuntime, format, args...) }

func valueError(format string, args ...any) { fail(ErrRuntime, format, args...) }
