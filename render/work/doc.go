// Package work bounds the cost of one request, template or tokenizer file. A Budget has
// steps of work, bytes of memory and a context; code charges it before each piece of work.
//
// Units: a step is about 10 ns of one core: a few simple operations, one instruction of
// a regular expression, or copying or searching 32 bytes. Bytes count allocated memory,
// freed or not, so their sum is never below the memory in use.
//
// Invariants: a Budget that has ended stays ended, and each later charge of steps
// stops the work again. A Budget looks at its context and at its deadline at least once in
// 100 µs of charged work, and then lets other goroutines run. With Turns, longer work
// leaves processors free, so that small requests do not wait behind it.
//
// A charge that the Budget cannot pay panics with a value that only Catch recovers. Each
// exported function that charges a Budget and returns an error defers Catch; a function
// without an error says that it charges, and its caller defers Catch. With returned
// errors every function from the regular expressions to the dicts would have one more
// result and one more branch. Code that charges holds no lock, and a panic leaves memory
// from a pool to the garbage collector.
//
// A Budget belongs to one goroutine at a time. The zero Budget has no limits, and does
// not let other goroutines run.
package work
