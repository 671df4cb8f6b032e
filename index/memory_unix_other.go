//go:build unix && !linux && !race

package index

func adviseHuge([]byte) {}
