//go:build linux && !race

package index

import "golang.org/x/sys/unix"

// adviseHuge asks for 2 MiB pages, which save a TLB miss per probe of a large
// table. Kernels that refuse work without.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
