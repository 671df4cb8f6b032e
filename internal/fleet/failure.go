package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// The reasons why a replica is not ready, or left: a closed set, for the log.
const (
	reasonUnreachable  = "unreachable"  // no connection, or it broke
	reasonTimeout      = "timeout"      // no answer in time
	reasonLoading      = "loading"      // it answers 503
	reasonUnauthorized = "unauthorized" // it answers 401 or 403
	reasonNoModels     = "no_models"
	reasonBadAnswer    = "bad_answer" // anything else
	reasonRestarted    = "restarted"  // another process answers at the address
	reasonChanged      = "changed"    // its block size, models or event sources changed, or it sleeps without its cache
	reasonRemoved      = "removed"    // no source lists it
)

// failure is the reason why a request to a replica has no answer.
type failure struct {
	reason string
	err    error
}

func (f *failure) Error() string {
	text := f.err.Error()
	if r := []rune(text); len(r) > 200 { // it may quote the replica's answer
		text = string(r[:200]) + "…"
	}
	return strings.ReplaceAll(f.reason, "_", " ") + ": " + text
}

func (f *failure) Unwrap() error { return f.err }

func reasonOf(err error) string {
	var f *failure
	if errors.As(err, &f) {
		return f.reason
	}
	return reasonBadAnswer
}

// status is an answer other than 200.
type status int

func (s status) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

// isTransient reports whether a repeated request may succeed: any error but a
// definite refusal.
func isTransient(err error) bool {
	if err == nil {
		return false
	}
	var s status
	return !errors.As(err, &s) || s >= 500 && s != http.StatusNotImplemented || s == http.StatusTooManyRequests
}

// vacant reports whether err, of a replica that was up, shows that its process has ended:
// nothing listens there, or what answers is loading.
func vacant(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || reasonOf(err) == reasonLoading
}

// transportFailure is the failure of a request to addr that has no complete answer.
func transportFailure(addr string, err error) error {
	var timeout interface{ Timeout() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return &failure{reasonTimeout, &spoken{"no answer in time from " + addr, err}}
	}
	if text := inWords(addr, err); text != "" {
		err = &spoken{text, err}
	}
	return &failure{reasonUnreachable, err}
}

// spoken is an error with a text for people in place of its own, which has the request's
// URL, the address twice and the names of system calls.
type spoken struct {
	text string
	err  error
}

func (s *spoken) Error() string { return s.text }

func (s *spoken) Unwrap() error { return s.err }

// inWords says for people why a request to addr failed, "" for a cause that it does not know.
func inWords(addr string, err error) string {
	var certificate *tls.CertificateVerificationError
	var dial *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens at " + addr
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no network route to " + addr
	case errors.Is(err, http.ErrSchemeMismatch):
		return addr + " answers without TLS, and fleet.tls is on"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "what listens at " + addr + " does not speak HTTP"
	case errors.As(err, &certificate):
		return "the certificate of " + addr + " is refused: " + certificate.Err.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return addr + " closed the connection before its answer was complete"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "no connection to " + addr + ": " + dial.Err.Error()
	}
	return ""
}
