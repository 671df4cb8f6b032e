//go:build linux && !race

package offheap

import "golang.org/x/sys/unix"

// adviseHuge requests 2 MiB pages. Kernels that refuse work without.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
