package sglang

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"warmroute/index"
)

// Name is the owned_by of SGLang's models.
const Name = "sglang"

// AdapterMark stands between the names of a model and of its adapter in a request's model.
const AdapterMark = ":"

// loadLeast is the least number of tokens that SGLang loads from the host's memory
// (UnifiedRadixCache.load_back_threshold).
const loadLeast = 10

// maxText bounds a text of a server.
const maxText = 1024

// Server is what /server_info says.
type Server struct {
	Version      string  `json:"version"`
	PageSize     int     `json:"page_size"`
	Parallel     int     `json:"dcp_size"` // a block has as many pages
	Hierarchical bool    `json:"enable_hierarchical_cache"`
	Disabled     bool    `json:"disable_radix_cache"`
	CacheReport  bool    `json:"enable_cache_report"`
	Metrics      bool    `json:"enable_metrics"`
	Tokens       int     `json:"max_total_num_tokens"` // that its cache has room for
	ModelPath    string  `json:"model_path"`
	Config       *string `json:"kv_events_config"`
	Events       *Events `json:"kv_events"` // nil: it publishes none, or does not say

	Kinds []string `json:"-"` // of its attention, "full" and others; nil: unknown
}

// Events is where a server publishes.
type Events struct {
	Publisher  string `json:"publisher"`
	Host       string `json:"endpoint_host"`
	Port       int    `json:"endpoint_port_base"` // of rank 0; each rank has the next
	Topic      string `json:"topic"`
	BlockSize  int    `json:"block_size"`
	Ranks      int    `json:"dp_size"`
	ReplayPort int    `json:"replay_endpoint_port_base"` // 0: there is no replay
}

// Decode reads the answer of /server_info.
func Decode(data []byte) (*Server, error) {
	s := new(Server)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, errors.New("server_info: a field has another type than SGLang's")
	}
	if len(s.Version)+len(s.ModelPath) > maxText || s.Events != nil && len(s.Events.Host)+len(s.Events.Topic) > maxText {
		return nil, errors.New("server_info: a text is too long")
	}
	return s, nil
}

// BlockSize returns the tokens of a block, 0 if they are unknown.
func (s *Server) BlockSize() int {
	if s.Events != nil && s.Events.BlockSize > 0 {
		return s.Events.BlockSize
	}
	return max(0, s.PageSize) * max(1, s.Parallel)
}

// Dynamo reports whether its events are in format dynamo.
func (s *Server) Dynamo() bool {
	var c struct {
		Format string `json:"format"`
	}
	return s.Config != nil && json.Unmarshal([]byte(*s.Config), &c) == nil && c.Format == "dynamo" && s.release().since(22)
}

// release is the numbers of a version, 0.5.5.post3 being 0.5.5.
type release [3]int

func (s *Server) release() (r release) {
	if n, _ := fmt.Sscanf(s.Version, "%d.%d.%d", &r[0], &r[1], &r[2]); n < 3 {
		return release{}
	}
	return r
}

// since reports whether the release is 0.5.patch or later.
func (r release) since(patch int) bool { return slices.Compare(r[:], []int{0, 5, patch}) >= 0 }

// Chained reports whether the hash of a page in its events covers the pages before it.
func (s *Server) Chained() bool {
	r := s.release()
	return r == release{} || r.since(6)
}

// Settings returns the settings of its cache for the index. groups are the cache groups of its
// model, nil if they are not known.
func (s *Server) Settings(kinds []string) *index.GroupSettings {
	t := &index.GroupSettings{Rule: index.GroupRuleSGLang, EagleKnown: true, Block: s.BlockSize(), Limit: s.limit(kinds)}
	if s.Hierarchical {
		t.Loads, t.LoadLeast = true, loadLeast
	}
	switch r := s.release(); {
	case r == release{}: // as the current ones
	case !r.since(20):
		t.Sight = index.SightTokens
	case !r.since(22):
		t.Sight = index.SightSalts
	}
	if s.Dynamo() {
		t.Sight = index.SightAll
	}
	return t
}

// limit returns why predictions may be too high, or "".
func (s *Server) limit(kinds []string) string {
	if s.Kinds != nil {
		kinds = s.Kinds
	}
	switch r := s.release(); {
	case s.Disabled:
		return "its radix cache is disabled, so it hits nothing: start it without --disable-radix-cache"
	case r == release{}:
		return "its version is not known, so neither are the fields of its events: let it answer /server_info"
	case !r.since(20):
		return "events of SGLang before 0.5.20 show neither salts nor adapters nor extra_key, so the prediction may be too high: update it to 0.5.22 or later"
	case !r.since(22):
		return "events of SGLang before 0.5.22 show neither adapters nor extra_key, so the prediction may be too high: update it"
	case kinds == nil:
		return "whether its model has sliding windows or Mamba states is not known, so the prediction may be too high: give the model's config.json"
	case len(kinds) > 1 || kinds[0] != "full":
		return "SGLang announces neither sliding windows nor Mamba states (" + strings.Join(kinds, ", ") + "), so the prediction, of full attention, may be too high: nothing can be set, answers show the difference with --enable-cache-report"
	}
	return ""
}

// Missing returns one sentence for each flag without which a router sees less. events says that
// its events are expected where it publishes them itself.
func (s *Server) Missing(events bool) (notes []string) {
	if events && s.Events == nil && s.Config == nil {
		notes = append(notes, `it publishes no KV events: start SGLang with --kv-events-config '{"publisher":"zmq","topic":"kv","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5558"}'`)
	}
	if events && s.Events == nil && s.Config != nil {
		notes = append(notes, "it publishes KV events, but does not say where, as SGLang 0.5.15 and later do: configure its events")
	}
	if !s.CacheReport {
		notes = append(notes, "its answers do not count cached tokens: start SGLang with --enable-cache-report")
	}
	if !s.Metrics {
		notes = append(notes, "it has no /metrics, so its load is that of /v1/loads or of the requests in flight, and its counters of cached tokens are not known: start SGLang with --enable-metrics")
	}
	return notes
}
