package index

// What a pool gives out is of a power of two, from leastBlock to a region: below,
// the Go heap is as good.
const (
	regionSize = 2 << 20
	leastBlock = 4 << 10
)
