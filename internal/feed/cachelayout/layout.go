package cachelayout

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"warmroute/index"
)

// ErrUnknown means that nobody has found out how vLLM arranges the layers of such a
// model.
var ErrUnknown = errors.New("it is not known which cache groups vLLM makes of this model")

// Layout is the cache groups of a model.
type Layout struct {
	Groups []index.CacheGroup
	Chunk  int // tokens, of chunked attention; 0: there is none
}

// AddTo fills in the settings of a replica's groups that are not set from the layout.
func (l *Layout) AddTo(t *index.GroupSettings) {
	if l == nil {
		return
	}
	t.Filed = l.Groups
	if t.Chunk == 0 {
		t.Chunk = l.Chunk
	}
}

// maxConfig bounds a config.json.
const maxConfig = 16 << 20

// maxLayers exceeds the layers of any model.
const maxLayers = 4096

// Read reads the config.json of a model's folder.
func Read(dir string) (*Layout, error) {
	path := filepath.Join(dir, "config.json")
	if info, err := os.Stat(path); err == nil && info.Size() > maxConfig {
		return nil, fmt.Errorf("%s has %d bytes, more than a configuration", path, info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Parse reads the text of a config.json.
func Parse(raw []byte) (*Layout, error) {
	c, err := parse(raw)
	if err != nil {
		return nil, err
	}
	layers, err := c.layers()
	if err != nil {
		return nil, err
	}
	return arrange(layers)
}

// parse reads the configuration of the part that generates text.
func parse(raw []byte) (*config, error) {
	var c struct {
		config
		Text *config `json:"text_config"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, errors.New("it is not a model's configuration in JSON")
	}
	if c.Text != nil {
		return c.Text, nil
	}
	return &c.config, nil
}

// layer describes the cache of one layer. Equal layers may share a group.
type layer struct {
	spec   string // vLLM's kv_cache_spec_kind; "": nothing
	window int
	chunk  int
}

var (
	full  = layer{spec: "full_attention"}
	mla   = layer{spec: "mla_attention"}
	state = layer{spec: "mamba"}
)

// arrange makes groups of layers as vLLM does if all layers have pages of one size,
// or are given them. Each group has as many layers as the rarest kind, or as the most
// frequent kind if that has less than half as many more.
func arrange(layers []layer) (*Layout, error) {
	var kinds []layer
	count := map[layer]int{}
	for _, l := range layers {
		if l.spec == "" {
			continue
		}
		if count[l] == 0 {
			kinds = append(kinds, l)
		}
		count[l]++
	}
	if len(kinds) == 0 {
		return nil, ErrUnknown
	}
	least, most := count[kinds[0]], 0
	for _, n := range count {
		least, most = min(least, n), max(most, n)
	}
	size := least
	if 2*most < 3*least {
		size = most
	}
	out := &Layout{}
	for _, kind := range kinds {
		groups := (count[kind] + size - 1) / size
		if len(kinds) == 1 {
			groups = 1
		}
		for range groups {
			out.Groups = append(out.Groups, index.GroupSpec(len(out.Groups), kind.spec, kind.window, kind.chunk))
		}
		out.Chunk = max(out.Chunk, kind.chunk)
	}
	if len(out.Groups) > index.MaxGroups {
		return nil, ErrUnknown
	}
	return out, nil
}
