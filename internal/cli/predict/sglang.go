package predict

import (
	"fmt"

	"warmroute/index"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/kvevents"
	"warmroute/internal/sglang"
)

// sglangHeader has the fields of a header with "engine":"sglang": those of /server_info, and
// short forms of some.
type sglangHeader struct {
	PageSize     int      `json:"page_size"`
	Hierarchical bool     `json:"enable_hierarchical_cache"`
	Disabled     bool     `json:"disable_radix_cache"`
	Config       *string  `json:"kv_events_config"`
	Kinds        []string `json:"kinds"`        // of the model's attention: "full", "swa", "mamba"
	Format       string   `json:"event_format"` // instead of kv_events_config
	HiCache      *string  `json:"hicache"`      // instead of enable_hierarchical_cache: the write policy
}

// engine returns the settings of the cache and the reader of the events of the header's
// engine. The reader is nil for vLLM.
func (h *header) engine(l *cachelayout.Layout) (*index.GroupSettings, kvevents.Adapter, error) {
	switch h.Engine {
	case "", "vllm":
		told, err := h.groupSettings()
		if err != nil {
			return nil, nil, err
		}
		told.Chunk = l.ChunkOr(told.Chunk)
		return told, kvevents.VLLM(), nil
	case sglang.Name:
		s := h.server()
		return s.Settings(l.KindsOf()), kvevents.SGLang(kvevents.SGLangOptions{Dynamo: s.Dynamo()}), nil
	}
	return nil, nil, fmt.Errorf("engine %q: want vllm or sglang", h.Engine)
}

func (h *header) server() *sglang.Server {
	g := &h.sglangHeader
	s := &sglang.Server{Version: h.Version, PageSize: g.PageSize, Disabled: g.Disabled,
		Hierarchical: g.Hierarchical || g.HiCache != nil, Config: g.Config, Kinds: g.Kinds}
	if g.Format != "" {
		config := fmt.Sprintf(`{"format":%q}`, g.Format)
		s.Config = &config
	}
	return s
}
