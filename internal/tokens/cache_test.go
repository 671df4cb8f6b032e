package tokens

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
)

// An entry counts with the memory that it keeps, whatever the replica has answered.
func TestCacheCountsItsMemory(t *testing.T) {
	held := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	const slack = 64 << 10 // of the runtime, and of small allocations' size classes
	ids := strings.Repeat(",1", 1<<20)
	for name, c := range map[string]struct {
		route  openai.Route
		answer string
	}{
		"a long hash":          {openai.Chat, fmt.Sprintf(`{"token_ids":[1,2],"features":{"mm_hashes":{"image":[%q]},"mm_placeholders":{"image":[{"offset":0,"length":1}]}}}`, strings.Repeat("a", 1<<20))},
		"an item without hash": {openai.Chat, `{"token_ids":[1` + ids + `],"features":{"mm_placeholders":{"image":[{"offset":1,"length":1}]}}}`},
		"short prompts":        {openai.Completions, `[{"token_ids":[1]}` + strings.Repeat(`,{"token_ids":[1]}`, 20_000) + `]`},
		"ids":                  {openai.Chat, `{"token_ids":[1` + ids + `],"features":{}}`},
	} {
		cache, body := newCache(DefaultCacheBytes), []byte(c.answer)
		before := held()
		prompts, err := parseRender(c.route, c.route == openai.Chat)(body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		cache.put(key{}, Result{Prompts: prompts}, nil, time.Now(), time.Hour)
		if kept := held() - before; kept > cache.size*5/4+slack {
			t.Errorf("%s: the cache counts %d bytes and keeps %d", name, cache.size, kept)
		}
		runtime.KeepAlive(cache)
		runtime.KeepAlive(body)
	}
}
