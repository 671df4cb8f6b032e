package tokenizer

import (
	"runtime"
	"testing"
)

// A loaded Qwen3 takes at most 40 MB, and loading leaves nothing else behind.
func TestMemory(t *testing.T) {
	live := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	tok, err := Load(modelDir(t, "qwen3"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if mb := (live() - before) / 1e6; mb > 40 || mb < 1 {
		t.Errorf("a loaded Qwen3 takes %d MB, want 1 to 40", mb)
	} else {
		t.Logf("a loaded Qwen3 takes %d MB", mb)
	}
	runtime.KeepAlive(tok)
}
