//go:build linux && !race

package offheap

import "golang.org/x/sys/unix"

// adviseHuge requests 2 MiB pages. A kernel may refuse: the memory works
// without them.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
