// Package faults holds the index to the truth while everything around it fails:
// publishers with lost, late and reordered batches, broken connections, new
// lives, resets and replay buffers that are too short; subscribers that join
// late, stand still or are replaced; an index service that goes and comes back
// empty. Its tests are storms of such faults over real sockets, in process and
// through the sidecar's path.
//
// A storm is drawn from a seed, which is printed: -storm.seed repeats every
// choice, though not how the machine interleaves them. -storm=long is the form
// for a machine of its own; the short one's time limits allow for a busy one.
package faults
