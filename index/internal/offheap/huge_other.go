//go:build unix && !linux && !race

package offheap

func adviseHuge([]byte) {}
