// Package epoch reports when no lookup can still see a thing that a writer took
// away (epoch-based reclamation).
//
// A lookup announces the epoch it starts in (Clock.Enter, Reader.Leave). A writer
// first makes a thing unreachable and then starts a new epoch (Clock.Retire).
// Once every announced epoch is at least that one, no lookup can hold the thing:
// the lookups that saw it have ended, and later ones cannot reach it. A Limbo
// keeps things until then.
//
// Any goroutine may use a Clock; nothing in it waits. A Limbo has one writer at a
// time.
package epoch
