// Package offheap gives out memory outside the Go heap, as slices of words.
//
// The garbage collector neither scans nor counts it, and huge pages, if the system
// has any, save a walk through page tables per random access. A request of a power
// of two from 4 KiB to 2 MiB is a block of a region of one huge page, by the buddy
// system; any other of 64 KiB and more is a mapping of its own; smaller ones are
// the Go heap's, where the rounding to pages would cost more than the collector. A
// build with the race detector takes everything from the Go heap, where the
// detector sees it, and overwrites freed memory.
//
// # Why the unsafe code is sound
//
// Mappings are private, anonymous and writable, and are unmapped by the pool
// alone, when their last block is freed. A slice that Words returns lies within
// one mapping: blocks are cut at multiples of their own size from a region that is
// aligned to its size, and a mapping of its own is as long as its slice. Mapped
// memory is page-aligned, so words are aligned. No Go pointer is ever stored in
// it: Words returns words, and Of accepts only types without pointers. So the
// collector, which does not look there, misses nothing. A use after Free would be
// wrong; Retire postpones the Free until no lookup can see the memory.
package offheap
