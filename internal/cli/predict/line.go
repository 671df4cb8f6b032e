package predict

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"warmroute/index"
	"warmroute/internal/feed/cachelayout"
	"warmroute/prefixhash"
)

// line is one line of input: a header, a frame, a query or a usage.
type line struct {
	Frame *frame `json:"frame"`
	Query *query `json:"query"`
	Usage *int   `json:"usage"`
	header
}

type frame struct {
	Topic   string  `json:"topic"`
	Seq     *uint64 `json:"seq"`
	Payload []byte  `json:"payload"`
}

type query struct {
	Tokens []uint32 `json:"tokens"`
	Salt   *string  `json:"cache_salt"`
	LoRA   *string  `json:"lora_name"`
	Path   string   `json:"lora_path"`
	Space  string   `json:"extra_key"`

	// InFlight are the prompts of the other requests that the replica has when this one
	// arrives, in any order; nil: the query is at the request's admission.
	InFlight [][]uint32 `json:"in_flight"`
}

// flight returns what the replica has in flight besides the query. Prompts share what is equal,
// whatever is mixed into it.
func (q *query) flight() (f index.Flight) {
	f.Others = len(q.InFlight) > 0
	for _, other := range q.InFlight {
		shared := 0
		for shared < min(len(other), len(q.Tokens)) && other[shared] == q.Tokens[shared] {
			shared++
		}
		f.Shared = max(f.Shared, shared)
	}
	return f
}

// header is the first line.
type header struct {
	Version  string         `json:"version"`
	Algo     string         `json:"hash_algo"`
	NoneHash string         `json:"none_hash"`
	Assume   *assume        `json:"assume"`
	Labels   map[string]any `json:"cache_config_info"`
	// Model is the model's config.json. It has the chunk size, and the kinds of SGLang's
	// attention.
	Model json.RawMessage `json:"model_config"`

	Engine string `json:"engine"`
	sglangHeader
}

// layout returns what the model's layers keep, nil without a config.json.
func (h *header) layout() (*cachelayout.Layout, error) {
	if h.Model == nil {
		return nil, nil
	}
	l, err := cachelayout.Parse(h.Model)
	if err != nil {
		return nil, fmt.Errorf("model_config: %w", err)
	}
	return l, nil
}

// assume has the settings that events do not contain. If it is given, a field that it
// leaves out is absent: no draft model, no replayed window.
type assume struct {
	Rule       string          `json:"rule"`
	Eagle      json.RawMessage `json:"eagle"`
	Unit       int             `json:"unit"`
	Block      int             `json:"block"`
	Chunk      int             `json:"chunk"`
	Replay     int             `json:"replay"`
	ReportFull bool            `json:"report_full"` // otherwise the events show it
}

// maxGroups exceeds the cache groups of any model, maxTokens the tokens of any block,
// window or chunk.
const (
	maxGroups = 32
	maxTokens = 1 << 30
)

func (a *assume) validate() error {
	return inRange(map[string]int{"unit": a.Unit, "block": a.Block, "chunk": a.Chunk, "replay": a.Replay})
}

// inRange returns an error unless all are possible numbers of tokens.
func inRange(numbers map[string]int) error {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if n := numbers[name]; n < 0 || n > maxTokens {
			return fmt.Errorf("%s %d: want a number from 0 to %d", name, n, maxTokens)
		}
	}
	return nil
}

// groupSettings returns the header's settings of the groups.
func (h *header) groupSettings() (*index.GroupSettings, error) {
	t := &index.GroupSettings{Unit: h.number("prefix_match_unit"), Block: h.number("block_size")}
	if t.Unit == 0 {
		t.Unit = h.number("hash_block_size")
	}
	t.Rule = index.GroupRuleOf(prefixhash.ParseRelease(h.Version))
	a := h.Assume
	if a == nil {
		return t, nil
	}
	if err := a.validate(); err != nil {
		return nil, fmt.Errorf("assume: %w", err)
	}
	t.EagleKnown, t.ReplayKnown, t.Chunk, t.Replay = true, true, a.Chunk, a.Replay
	t.Reports = a.ReportFull
	if a.Unit > 0 {
		t.Unit = a.Unit
	}
	if a.Block > 0 {
		t.Block = a.Block
	}
	switch a.Rule {
	case "":
	case "0.27":
		t.Rule = index.GroupRule027
	case "0.32":
		t.Rule = index.GroupRule032
	default:
		return nil, fmt.Errorf("assume: rule %q: want 0.27 or 0.32", a.Rule)
	}
	var err error
	t.Eagle, err = eagle(a.Eagle)
	return t, err
}

// number reads a label. Labels are text, and "None" stands for no number.
func (h *header) number(label string) int {
	switch v := h.Labels[label].(type) {
	case string:
		n, _ := strconv.Atoi(v)
		return max(0, n)
	case float64:
		return max(0, int(v))
	}
	return 0
}

// eagle reads the groups that drop a block: "0,1", [0,1], 1, "all", "none" or nothing.
func eagle(raw json.RawMessage) (uint32, error) {
	text := strings.Trim(strings.TrimSpace(string(raw)), `[]"`)
	switch text {
	case "", "null", "none":
		return 0, nil
	case "all":
		return ^uint32(0), nil
	}
	mask := uint32(0)
	for one := range strings.SplitSeq(text, ",") {
		i, err := strconv.Atoi(strings.Trim(one, ` "`))
		if err != nil || i < 0 || i >= maxGroups {
			return 0, fmt.Errorf("assume: eagle %s: want numbers of groups", raw)
		}
		mask |= 1 << i
	}
	return mask, nil
}

// hashes returns the configurations that the publisher may hash with.
func (h *header) hashes() ([]*prefixhash.VLLM, error) {
	release := prefixhash.ParseRelease(h.Version)
	if h.NoneHash == "" {
		all := release.Candidates("0")
		if h.Algo == "" {
			return all, nil
		}
		a, err := prefixhash.ParseAlgorithm(h.Algo)
		return slices.DeleteFunc(all, func(v *prefixhash.VLLM) bool { return v.Algorithm() != a }), err
	}
	raw, err := hex.DecodeString(h.NoneHash)
	if err != nil {
		return nil, errors.New("none_hash: want hexadecimal digits")
	}
	root, err := prefixhash.ParseDigest(raw)
	if err != nil {
		return nil, fmt.Errorf("none_hash: %w", err)
	}
	algorithms := []prefixhash.Algorithm{prefixhash.SHA256, prefixhash.SHA256CBOR, prefixhash.XXHash, prefixhash.XXHashCBOR}
	if h.Algo != "" {
		a, err := prefixhash.ParseAlgorithm(h.Algo)
		if err != nil {
			return nil, err
		}
		algorithms = []prefixhash.Algorithm{a}
	}
	var all []*prefixhash.VLLM
	for _, a := range algorithms {
		for _, g := range []prefixhash.Generation{prefixhash.Tagged, prefixhash.Untagged} {
			if is := release.Generation(); is != 0 && g != is {
				continue
			}
			v, err := prefixhash.NewVLLMFrom(a, g, root)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
	}
	return all, nil
}
