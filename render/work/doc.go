// Package work bounds what one request, template or tokenizer file may cost. A Budget
// holds steps of work and bytes of memory, and a context; the code that works charges
// it before each piece of work.
//
// Units: a step is about 10 ns of one core: a few simple operations, one instruction of
// a regular expression, or 32 bytes that are copied or searched. Bytes are those of
// allocated memory, freed or not, so the sum is never below what is held at once.
//
// Invariants: a Budget that has ended stays ended, and each later charge stops the
// work again. A Budget looks at its context and at its deadline at least once in
// 100 µs of charged work, and then lets other goroutines run. With Turns, work that is
// longer than that leaves processors free, so that small requests do not wait behind it.
//
// A charge that cannot be paid panics with a value that only Catch recovers. Each
// exported function that charges a Budget and returns an error defers Catch; those
// without an error say that they charge, and their caller defers it. With returned
// errors every function from the regular expressions to the dicts would have one more
// result and one more branch. Code that charges holds no lock, and what it has taken
// from a pool is lost to the garbage collector.
//
// A Budget belongs to one goroutine at a time. The zero Budget has no limits, and does
// not let other goroutines run.
package work
