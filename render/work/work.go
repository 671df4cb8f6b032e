package work

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"
)

// The errors of stopped work, for errors.Is.
var (
	ErrSteps  = errors.New("the work exceeds its budget of steps")
	ErrMemory = errors.New("the work exceeds its budget of memory")
	// ErrEnded comes together with the context's own error.
	ErrEnded = errors.New("the work was ended")
)

// Limits bound the cost of the work on an input: a constant, and an amount for each of the
// input's bytes. Zero fields mean the defaults.
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

// Budget has the steps and the memory that some work may still take. The zero value has no
// limits.
type Budget struct {
	left     int // steps until the next look at the context
	rest     int // steps after left
	memory   int // bytes left
	limited  bool
	err      error // why the work has ended
	ctx      context.Context
	deadline time.Time // of ctx; zero: none
	steps    int       // at the beginning
	bytes    int       // at the beginning
	turns    *Turns    // nil: none
	looks    int       // at the context
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

// linear returns constant + factor × input, with defaults for zeros.
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

// Step charges n steps. It panics if the work has to end; see Catch.
func (b *Budget) Step(n int) {
	if b.left -= n; b.left < 0 {
		b.look()
	}
}

// Memory charges n bytes of memory. It panics if the work has to end; see Catch.
func (b *Budget) Memory(n int) {
	if b.memory -= n; b.memory < 0 {
		b.outOfMemory()
	}
}

// copied is the number of bytes that a processor copies or searches in a step.
const copied = 32

// Read charges for reading n bytes at the speed of a copy.
func (b *Budget) Read(n int) { b.Step(n / copied) }

// Make charges for allocating n bytes and writing them at the speed of a copy.
func (b *Budget) Make(n int) {
	b.Memory(n)
	b.Step(n / copied)
}

// Spent returns the charges so far.
func (b *Budget) Spent() (steps, memory int) {
	return b.steps - b.rest - b.left, b.bytes - b.memory
}

// Err returns why the work has to end, nil if it may go on. It charges nothing.
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

// Pause looks at the context in the middle of a piece of work, and lets other goroutines
// run. It charges nothing, and panics if the work has to end; see Catch. On a nil Budget it
// does nothing.
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

// look looks at the context, and takes steps until the next look. It, outOfMemory and grown
// stay out of line: inlined, they would slow down the loops that charge.
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

// open gives a zero Budget all the steps and bytes that an int can count.
func (b *Budget) open() {
	if b.limited {
		return
	}
	b.limited = true
	b.steps, b.bytes = math.MaxInt, math.MaxInt
	b.left += b.steps
	b.memory += b.bytes
}

// stop is the panic of a charge that the Budget cannot pay.
type stop struct{ err error }

// Catch recovers the panic of a charge that the Budget could not pay, and sets *err to its
// error. Callers defer it. Other panics go on.
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case stop:
		*err = r.err
	default:
		panic(r)
	}
}

// Stopped returns the error of a recovered value if a charge panicked with it, for packages
// that also recover panics of their own.
func Stopped(recovered any) (error, bool) {
	s, ok := recovered.(stop)
	return s.err, ok
}

// Grown charges for the memory of s if append has replaced it: before is its earlier
// capacity.
func Grown[T any](b *Budget, before int, s []T) {
	if cap(s) != before {
		b.grown(cap(s), unsafe.Sizeof(*new(T)))
	}
}

//go:noinline
func (b *Budget) grown(n int, size uintptr) { b.Memory(n * int(size)) }

// Or returns b, or a Budget without limits if b is nil.
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
