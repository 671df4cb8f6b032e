package work

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"
)

// The errors of work that was stopped, matched with errors.Is.
var (
	ErrSteps  = errors.New("the work exceeds its budget of steps")
	ErrMemory = errors.New("the work exceeds its budget of memory")
	// ErrEnded is wrapped together with the context's own error.
	ErrEnded = errors.New("the work was ended")
)

// Limits are what the work on an input may cost: a constant, and so much for each of
// the input's bytes. Zero fields take the defaults.
type Limits struct {
	Steps, StepsPerByte   int
	Memory, MemoryPerByte int // in bytes
}

// Defaults of Limits. 10 million steps are about 100 ms; ordinary text costs about 5
// steps a byte. Ordinary bodies need 2 to 4 times their size of memory.
const (
	DefaultSteps         = 10_000_000
	DefaultStepsPerByte  = 16
	DefaultMemory        = 32 << 20
	DefaultMemoryPerByte = 6
)

// slice is the number of steps between two looks at the context, about 80 µs.
const slice = 8192

// Budget is what some work may still cost. The zero value has no limits.
type Budget struct {
	left     int // steps until the next look at the context
	rest     int // steps after those
	memory   int // bytes left
	limited  bool
	err      error // why the work has ended
	ctx      context.Context
	deadline time.Time // of ctx; zero: none
	steps    int       // at the beginning
	bytes    int       // at the beginning
	turns    *Turns    // nil: none
	turn     bool      // b has one of turns
}

// New returns a Budget for the work on an input of some bytes, until ctx ends.
func New(ctx context.Context, l Limits, input int) *Budget {
	b := new(Budget)
	b.Start(ctx, l, input)
	return b
}

// Start makes b a new budget for the work on an input of some bytes, until ctx ends.
func (b *Budget) Start(ctx context.Context, l Limits, input int) {
	b.End()
	*b = Budget{limited: true, ctx: ctx,
		steps: linear(l.Steps, DefaultSteps, l.StepsPerByte, DefaultStepsPerByte, input),
		bytes: linear(l.Memory, DefaultMemory, l.MemoryPerByte, DefaultMemoryPerByte, input)}
	b.left = min(slice, b.steps)
	b.rest, b.memory = b.steps-b.left, b.bytes
	b.deadline, _ = ctx.Deadline()
}

// linear is constant + factor × input, with defaults for zero fields.
func linear(constant, defaultConstant, factor, defaultFactor, input int) int {
	if constant == 0 {
		constant = defaultConstant
	}
	if factor == 0 {
		factor = defaultFactor
	}
	if input > (math.MaxInt-constant)/factor {
		return math.MaxInt
	}
	return constant + factor*input
}

// Step charges n steps. It panics when the work has to end; see Catch.
func (b *Budget) Step(n int) {
	if b.left -= n; b.left < 0 {
		b.look()
	}
}

// Memory charges n bytes of memory. It panics when the work has to end; see Catch.
func (b *Budget) Memory(n int) {
	if b.memory -= n; b.memory < 0 {
		b.outOfMemory()
	}
}

// copied is how many bytes are copied or searched in a step.
const copied = 32

// Read charges for looking at n bytes, by the machine's fast means.
func (b *Budget) Read(n int) { b.Step(n / copied) }

// Make charges for allocating n bytes and writing them, by the machine's fast means.
func (b *Budget) Make(n int) {
	b.Memory(n)
	b.Step(n / copied)
}

// Spent is what has been charged so far.
func (b *Budget) Spent() (steps, memory int) {
	return b.steps - b.rest - b.left, b.bytes - b.memory
}

// Err is why the work has to end, nil if it may go on. It charges nothing.
func (b *Budget) Err() error {
	if b.err == nil && b.ctx != nil {
		err := b.ctx.Err()
		if err == nil && !b.deadline.IsZero() && !time.Now().Before(b.deadline) {
			err = context.DeadlineExceeded // the context's timer waits for a processor
		}
		if err != nil {
			b.err = fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
	return b.err
}

// Pause looks at the context in the middle of work that is charged as one piece, and lets
// other goroutines run. It charges nothing, and panics when the work has to end; see Catch.
// A nil Budget has no context.
func (b *Budget) Pause() {
	if b == nil {
		return
	}
	if b.Err() != nil {
		b.left = 0
		panic(stop{b.err})
	}
	b.yield()
}

// look takes the steps until the next look at the context. Inlined, it and what is
// like it would slow down the loops that charge.
//
//go:noinline
func (b *Budget) look() {
	if b.open(); b.left >= 0 {
		return
	}
	if b.Err() == nil && b.rest+b.left < 0 {
		b.err = ErrSteps
	}
	if b.err != nil {
		b.left = 0
		panic(stop{b.err})
	}
	next := min(slice, b.rest+b.left)
	b.left, b.rest = next, b.rest+b.left-next
	b.yield()
}

//go:noinline
func (b *Budget) outOfMemory() {
	if b.open(); b.memory >= 0 {
		return
	}
	if b.err == nil {
		b.err = ErrMemory
	}
	b.memory, b.left = 0, 0
	panic(stop{b.err})
}

// open makes a zero Budget one that does not end and has nothing to look at.
func (b *Budget) open() {
	if b.limited {
		return
	}
	b.limited = true
	b.steps, b.bytes = math.MaxInt, math.MaxInt
	b.left += b.steps
	b.memory += b.bytes
}

// stop is what a charge panics with that cannot be paid.
type stop struct{ err error }

// Catch turns the panic of a charge that could not be paid into the error that it
// stands for. It is deferred; other panics go on.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case stop:
		*err = r.err
	default:
		panic(r)
	}
}

// Stopped returns the error for a recovered value that a charge panicked with, for a
// package that recovers panics of its own too.
func Stopped(recovered any) (error, bool) {
	s, ok := recovered.(stop)
	return s.err, ok
}

// Grown charges for the memory of s where append has replaced it: before is the capacity that it had.
func Grown[T any](b *Budget, before int, s []T) {
	if cap(s) != before {
		b.grown(cap(s), unsafe.Sizeof(*new(T)))
	}
}

//go:noinline
func (b *Budget) grown(n int, size uintptr) { b.Memory(n * int(size)) }

// Or is b, or a Budget without limits where b is nil.
func Or(b *Budget) *Budget {
	if b == nil {
		return new(Budget)
	}
	return b
}

// Is reports whether err says that a budget has ended.
func Is(err error) bool {
	return errors.Is(err, ErrSteps) || errors.Is(err, ErrMemory) || errors.Is(err, ErrEnded)
}
