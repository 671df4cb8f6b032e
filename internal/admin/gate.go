package admin

import (
	"errors"
	"sync/atomic"
)

// Gate combines the reasons for not being ready. The zero value is not ready:
// it has not been opened. It is safe for concurrent use.
type Gate struct {
	checks atomic.Pointer[[]func() error]
	shut   atomic.Pointer[string]
}

// Open makes the gate ready as soon as every check returns nil. Checks are
// called for each request; they must be quick and safe for concurrent use.
func (g *Gate) Open(checks ...func() error) { g.checks.Store(&checks) }

// Shut makes the gate not ready for good, e.g. when the process goes down or a server
// has returned. The first reason stays.
func (g *Gate) Shut(why string) { g.shut.CompareAndSwap(nil, &why) }

// leaving returns why the gate is shut, or nil.
func (g *Gate) leaving() error {
	if why := g.shut.Load(); why != nil {
		return errors.New(*why)
	}
	return nil
}

// Ready returns all reasons for not being ready, joined, or nil.
func (g *Gate) Ready() error {
	if err := g.leaving(); err != nil {
		return err
	}
	checks := g.checks.Load()
	if checks == nil {
		return errors.New("starting")
	}
	var errs []error
	for _, check := range *checks {
		errs = append(errs, check())
	}
	return errors.Join(errs...)
}
