// Package holderset has immutable sets of holders that are compared by number.
//
// A holder that is written to has a slot (Slots), a number small enough for bit
// sets. Sets interns sets of slots: equal sets have equal IDs while they are used.
// A holder that ends loses its slot at once for lookups. The sets that name the
// slot are rewritten later. Then, and after the lookups that could have read them
// have ended, the slot is given to another holder.
//
// Slots and Sets have one writer at a time. Lookups read them without a lock, in
// an epoch (package epoch): an ID or a slot changes its meaning only after the
// lookups that could have read it have ended.
package holderset
