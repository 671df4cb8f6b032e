package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"warmroute/internal/sglang"
	"warmroute/prefixhash"
)

// Bounds of a replica's answers about itself.
const (
	// MaxModels bounds the ids of one replica: adapters come in hundreds. Further ones are not known.
	MaxModels     = 4096
	maxNameLength = 1024 // bytes of an id, a path, a version, a topic

	maxOwnerLength = 64 // bytes of the name of an engine
)

// learned is what a replica has said, and how.
type learned struct {
	Reported
	rust       bool // its API server is vLLM's Rust front end
	incomplete bool // some answer failed that may succeed later
	pageless   bool // it has no /metrics
}

// sameCache reports whether a and b describe the same KV caches, so that the
// index's entries of their blocks still hold. A block size that was unknown before
// is no difference.
func (a learned) sameCache(b learned) bool {
	sameSize := a.BlockSize == b.BlockSize || a.BlockSize == 0 || b.BlockSize == 0
	return sameSize && slices.Equal(a.Events, b.Events) && slices.Equal(bases(a.Models), bases(b.Models))
}

func bases(models []Model) []string {
	var out []string
	for _, m := range models {
		out = append(out, m.Base)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// decodeModels reads the answer of /v1/models (vLLM's ModelList). Ids that have
// no parent and the same root are names of one model; the first is the
// canonical one, which vLLM itself uses for its metrics and as parent of
// adapters. An id with a parent is an adapter, and its root the adapter's path.
// owner is the first id's owned_by, "" if there is none.
func decodeModels(data []byte) (models []Model, owner string, err error) {
	list, err := listed(data)
	if err != nil {
		return nil, "", fmt.Errorf("models: %w", err)
	}
	byRoot, byID := map[string]string{}, map[string]Model{}
	first := ""
	if len(list) > 0 && len(list[0].Owner) <= maxOwnerLength {
		owner = list[0].Owner
	}
	list = slices.DeleteFunc(list, func(m listedModel) bool {
		return m.ID == "" || len(m.ID) > maxNameLength || len(m.Root) > maxNameLength
	})
	for _, m := range list {
		if m.adapts() {
			continue
		}
		base := m.ID
		if m.Root != "" {
			if canonical, ok := byRoot[m.Root]; ok {
				base = canonical
			} else {
				byRoot[m.Root] = base
			}
		}
		if _, ok := byID[m.ID]; !ok {
			byID[m.ID] = Model{ID: m.ID, Base: base, Root: m.Root, MaxLen: max(0, m.MaxLen)}
			first = cmp.Or(first, m.ID)
		}
	}
	for _, m := range list {
		parent, ok := byID[m.Parent]
		if !ok || parent.LoRA.Set { // for example, the parent is named by its path
			parent = byID[first]
		}
		if _, taken := byID[m.ID]; taken || parent.ID == "" || !m.adapts() {
			continue
		}
		byID[m.ID] = Model{ID: m.ID, Base: parent.Base, Root: parent.Root, LoRA: prefixhash.LoRA{Name: m.ID, Path: m.Root, Set: true},
			MaxLen: cmp.Or(max(0, m.MaxLen), parent.MaxLen)}
	}
	return sortedModels(byID), owner, nil
}

// listedModel is a model as it is listed; a null leaves a field empty.
type listedModel struct {
	ID     string `json:"id"`
	Root   string `json:"root"`
	Parent string `json:"parent"`
	MaxLen int    `json:"max_model_len"`
	Owner  string `json:"owned_by"`
}

// adapts reports whether m is another model's adapter: some servers give a model without a parent
// an empty one, or itself.
func (m *listedModel) adapts() bool {
	return m.Parent != "" && m.Parent != m.ID
}

// listed reads the list of a /v1/models, of which one that is longer than maxAnswer is cut off. It is
// not read beyond MaxModels: an empty element takes twenty times its bytes in memory. A value of
// another type than vLLM's is not known.
func listed(data []byte) (list []listedModel, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, cmp.Or(err, errors.New("no object"))
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "data" {
			if err := d.Decode(new(json.RawMessage)); err != nil {
				return nil, err
			}
			continue
		}
		switch t, err := d.Token(); {
		case err == nil && t == nil: // null
			continue
		case err != nil || t != json.Delim('['):
			return nil, errors.New("data is not a list")
		}
		if list, err = elements(d, list); len(list) == MaxModels || len(data) >= maxAnswer {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = d.Token()
	return list, err
}

// elements appends the rest of an array to list, up to MaxModels, and those before an error.
func elements(d *json.Decoder, list []listedModel) ([]listedModel, error) {
	for d.More() && len(list) < MaxModels {
		var m listedModel
		if err := d.Decode(&m); err != nil && (m.ID == "" || !errors.As(err, new(*json.UnmarshalTypeError))) {
			return list, err
		}
		list = append(list, m)
	}
	_, err := d.Token()
	return list, err
}

func sortedModels(byID map[string]Model) []Model {
	out := make([]Model, 0, len(byID))
	for _, m := range byID {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// decodeEventSources reads the answer of /kv_event_sources (vLLM ≥ 0.32): an
// object of KVEventsConfig by data-parallel rank, ports already shifted by rank.
// host replaces wildcards. Ranks that publish nothing over ZMQ are left out.
func decodeEventSources(data []byte, host string) ([]EventSource, error) {
	if !json.Valid(data) {
		return nil, errors.New("kv_event_sources: no JSON")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("kv_event_sources: no object")
	}
	var out []EventSource
	for n := 0; d.More(); n++ {
		key, err := d.Token()
		rank, ok := atoi(fmt.Append(nil, key))
		if err != nil || !ok || rank > maxRank || n > maxRank {
			return nil, fmt.Errorf("kv_event_sources: %.20q is not a rank, or one of more than %d", key, maxRank+1)
		}
		var s struct {
			Enabled   *bool   `json:"enable_kv_cache_events"`
			Publisher *string `json:"publisher"`
			Endpoint  string  `json:"endpoint"`
			Replay    string  `json:"replay_endpoint"`
			Topic     string  `json:"topic"`
		}
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("kv_event_sources: %w", err)
		}
		if s.Enabled != nil && !*s.Enabled || s.Publisher != nil && *s.Publisher != "zmq" {
			continue
		}
		e := EventSource{Rank: rank, Endpoint: s.Endpoint, ReplayEndpoint: s.Replay, Topic: s.Topic}
		if len(e.Endpoint)+len(e.ReplayEndpoint)+len(e.Topic) > maxNameLength || e.Endpoint == "" {
			continue
		}
		if !isTCP(e.ReplayEndpoint) {
			e.ReplayEndpoint = ""
		}
		e.Endpoint, e.ReplayEndpoint = eventEndpoint(e.Endpoint, host), eventEndpoint(e.ReplayEndpoint, host)
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b EventSource) int { return a.Rank - b.Rank })
	return slices.CompactFunc(out, func(a, b EventSource) bool { return a.Rank == b.Rank }), nil // "1" and "01"
}

func isTCP(endpoint string) bool {
	return strings.HasPrefix(endpoint, "tcp://") && checkEndpoint(endpoint) == nil
}

// decodeVersion reads the answer of /version. vLLM's Rust front end names its own version, too.
func decodeVersion(data []byte) (version string, rust bool, err error) {
	var v struct {
		Version string  `json:"version"`
		Rust    *string `json:"rust_frontend_version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return "", false, fmt.Errorf("version: %w", err)
	}
	if len(v.Version) > maxNameLength {
		return "", false, errors.New("version: too long")
	}
	return v.Version, v.Rust != nil, nil
}

// learn requests every value that is not configured from a replica: its models, which name
// the engine, then its page, which is left in w.page, and the rest. before has the values
// learned last, if any; they replace answers that fail for now.
func (w *worker) learn(ctx context.Context, before *learned) (learned, error) {
	l := learned{Reported: Reported{BlockSize: w.options.BlockSize, Events: w.overrideEvents()}}
	if err := w.learnModels(ctx, &l, before); err != nil {
		return l, err
	}
	w.learnServer(ctx, &l, before)
	began := time.Now()
	scraped := w.attempt(ctx, w.scrape)
	if scraped == nil {
		l.BlockSize = cmp.Or(l.BlockSize, w.page.blockSize)
		l.HashAlgorithm = knownAlgorithm(w.page.hashAlgo)
		l.Blocks, l.HashUnit, l.Draftless, l.CacheOff = w.page.blocks, w.page.hashUnit, w.page.draftless(), w.page.cacheOff()
	} else {
		l.incomplete = l.incomplete || isTransient(scraped)
		if before != nil {
			l.BlockSize = cmp.Or(l.BlockSize, before.BlockSize)
			l.HashAlgorithm = before.HashAlgorithm
			l.Blocks, l.HashUnit, l.Draftless, l.CacheOff = before.Blocks, before.HashUnit, before.Draftless, before.CacheOff
		}
	}
	l.pageless = isRefused(scraped) && !isTransient(scraped) && reasonOf(scraped) != reasonUnauthorized && !w.sglang
	if scraped != nil { // the same sign of life that keeps it up later
		began = time.Now()
		if err := w.attempt(ctx, w.health); err != nil {
			return l, err
		}
	}
	w.answered = began
	w.learnEvents(ctx, &l, before)
	w.warnOfNone(&l)
	if l.SGLang != nil {
		w.ofSGLang(&l)
		return l, nil
	}
	if body, err := w.get(ctx, "/version"); err == nil {
		l.Version, l.rust, _ = decodeVersion(body)
	} else if isTransient(err) && before != nil {
		l.Version, l.rust = before.Version, before.rust
	}
	l.Draftless = l.Draftless && !l.rust // of whose metrics that was not read
	w.learnRender(ctx, &l, before)
	l.Transfer = w.transfer(before)
	return l, nil
}

// knownAlgorithm returns the name if it is one of vLLM's, else "".
func knownAlgorithm(name []byte) string {
	if slices.Contains(hashAlgorithms, string(name)) {
		return string(name)
	}
	return ""
}

// overrideEvents returns the configured event sources, wildcards replaced.
func (w *worker) overrideEvents() []EventSource {
	out := slices.Clone(w.options.Events)
	for i := range out {
		out[i].Endpoint = eventEndpoint(out[i].Endpoint, w.host)
		out[i].ReplayEndpoint = eventEndpoint(out[i].ReplayEndpoint, w.host)
	}
	slices.SortFunc(out, func(a, b EventSource) int { return a.Rank - b.Rank })
	return out
}

// configuredModels returns the models that the file names for a replica.
func configuredModels(o ReplicaOptions) []Model {
	byID := map[string]Model{}
	for _, m := range o.Models {
		model := Model{ID: m.ID, Base: cmp.Or(m.Base, m.ID), MaxLen: m.MaxLen}
		if m.LoRA {
			model.LoRA = prefixhash.LoRA{Name: m.ID, Path: m.LoRAPath, Set: true}
		}
		byID[m.ID] = model
	}
	return sortedModels(byID)
}

// learnModels asks for the models, and the engine that owns them. Where the models are configured,
// an answer is not needed.
func (w *worker) learnModels(ctx context.Context, l, before *learned) error {
	err := w.attempt(ctx, func(ctx context.Context) (err error) {
		l.Models, l.Engine, err = w.fleet.client().models(ctx, w.addr)
		return err
	})
	if configured := configuredModels(w.options); len(configured) > 0 {
		if l.Models, l.incomplete = configured, isTransient(err); err != nil && before != nil {
			l.Engine = before.Engine
		}
		return nil
	}
	if s := status(0); errors.As(err, &s) && (s == http.StatusNotFound || s == http.StatusNotImplemented) {
		return &failure{reasonBadAnswer, fmt.Errorf("/v1/models: %w; if it has none, name its models under fleet.replicas[].models", s)}
	}
	if err == nil && len(l.Models) == 0 {
		return &failure{reasonNoModels, errors.New("/v1/models lists none, or with names or roots of more than 1,024 bytes")}
	}
	return err
}

// learnEvents finds the replica's event sources: as configured, as an SGLang has said, or as it is asked.
func (w *worker) learnEvents(ctx context.Context, l *learned, before *learned) {
	sources, refused := l.Events, []string(nil)
	switch {
	case len(sources) > 0 && l.Engine == tensorRT:
		sources, refused = nil, []string{"the events of TensorRT-LLM are not read, what it has cached is known from what was sent there: leave out events"}
	case len(sources) > 0 && l.SGLang == nil:
		sources, refused = w.numbered(sources)
	case len(sources) > 0:
	case w.options.NoEvents:
		w.fleet.publishers.release(w)
		return
	case l.SGLang != nil:
		sources, refused = w.fleet.now().admit(w.published(l.SGLang), w.host)
	default:
		body, err := w.get(ctx, "/kv_event_sources")
		if err != nil {
			w.withoutSources(err, l, before)
			return
		}
		if sources, err = decodeEventSources(body, w.host); err != nil {
			refused = []string{err.Error()}
		} else {
			sources, refused = w.fleet.now().admit(sources, w.host)
		}
	}
	w.claim(l, before, sources, refused)
}

// withoutSources leaves the former sources where the replica may tell them later, and none where it has none.
func (w *worker) withoutSources(err error, l, before *learned) {
	if isTransient(err) {
		l.incomplete = true
		if before != nil {
			l.Events, l.EventsRefused, l.EventsUnknown = before.Events, before.EventsRefused, before.EventsUnknown
			return
		}
		l.EventsUnknown = true
	}
	w.fleet.publishers.release(w)
}

// warnOfNone logs that nothing will report the replica's blocks, although that is not
// configured. It logs once until the replica has event sources.
func (w *worker) warnOfNone(l *learned) {
	if l.SGLang != nil {
		return
	}
	none := len(l.Events) == 0 && l.EventsRefused == "" && !l.EventsUnknown && !w.options.NoEvents && !w.options.Sidecar
	switch {
	case !none || w.warned:
	case otherEngine(l.Engine):
		w.fleet.log.Info("replica runs neither vLLM nor SGLang: what it has cached is known from what was sent there, and its load from the requests of this router and its peers",
			"replica", w.addr, "engine", l.Engine, "metrics", !l.pageless)
	default:
		w.fleet.log.Warn("replica has no KV events: what it has cached is known from what was sent there alone; "+
			"start vLLM with --kv-events-config, configure events (needed before vLLM 0.32) or sidecar, or no_events if that is intended", "replica", w.addr)
	}
	w.warned = none
}

// otherEngine reports whether the owner of a replica's models names an engine whose KV events
// are not known. A list without owners may be vLLM's, from behind a proxy.
func otherEngine(owner string) bool {
	return owner != "" && owner != "vllm" && owner != sglang.Name
}

// tensorRT is the owned_by of TensorRT-LLM's models. Its events have vLLM's names and other
// contents.
const tensorRT = "tensorrt_llm"

// claim takes the sources that no other replica has, and says why it refuses the
// others.
func (w *worker) claim(l, before *learned, sources []EventSource, refused []string) {
	own, taken := w.fleet.publishers.claim(w, sources, len(w.options.Events) > 0)
	l.Events, l.EventsRefused = own, summary(append(taken, refused...))
	if l.EventsRefused != "" && (before == nil || before.EventsRefused != l.EventsRefused) {
		w.fleet.log.Warn("event sources of a replica are not used", "replica", w.addr, "why", l.EventsRefused)
	}
}

// renderProbe is the smallest request of a render route. The server renders it on
// its CPU, and no engine sees it.
const renderProbe = `{"model":%s,"prompt":"a"}`

func (w *worker) learnRender(ctx context.Context, l *learned, before *learned) {
	if before != nil && !before.incomplete {
		l.Render = before.Render // a flag of the process: one probe is enough
		return
	}
	id, _ := json.Marshal(l.Models[0].ID) // a text
	_, err := w.fleet.client().do(ctx, http.MethodPost, w.addr, "/v1/completions/render", fmt.Appendf(nil, renderProbe, id))
	l.Render = err == nil
	l.incomplete = l.incomplete || isTransient(err)
}
