// Package expiry holds entries that end by themselves: pairs of a key and a holder,
// each with a deadline.
//
// A Table's entries come in leases: one lease is a deadline, a holder, and the keys
// that one call gave it. An entry lasts until the latest deadline that a lease gave
// it, and the table keeps the number of that lease. A lease keeps its keys for as
// long as an entry lasts by it, so the table expires it by reading those keys and
// scans nothing.
//
// Invariants: a lease is in the heap exactly while at least one entry lasts by it; a
// killed holder's slot is freed when its last lease ends.
//
// Deadlines are Unix nanoseconds. Lookups compare them as ticks, which are rounded
// up to 2^24 ns, about 17 ms. Get, Has and Slots are for lookups, which have entered
// an epoch and take no lock. Any goroutine may call all other methods; Set, End, Kill and
// Expire wait for each other.
package expiry
