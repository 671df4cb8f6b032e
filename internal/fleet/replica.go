package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"warmroute/internal/sglang"
	"warmroute/prefixhash"
)

// Replica is one server as last seen. It is immutable.
type Replica struct {
	Addr string // "ip:port", IPv6 in brackets: the address that Envoy dials; its identity everywhere
	Configured
	Reported
	Ready  bool   // it is offered to requests
	Held   bool   // it is up and not ready, e.g. asleep: it gets requests where no replica is ready
	Why    string // why it is not ready, e.g. "unreachable: …"; "" when it is
	Empty  bool   // it sleeps without a KV cache; an event tells so only after it wakes
	Joined uint64 // the number of its latest join; rises with every join of any replica

	Ranks     []int  // data-parallel ranks behind this address, ascending; [0] without data parallelism
	FirstRank int    // the rank that a request's header calls 0, 0 if that counts the ranks of the whole deployment; -1 when not known
	Load      []Load // one per rank that reports any, ascending
	Store     string // the store of KV blocks that it shares with others, by name; "" = none is known

	told   bool   // its models are configured
	closed string // why its models are not read again, "" if they are
	unread string // why its /metrics are not read, "" if they are, or if it need not have any
}

// Configured is what the configuration alone says of a replica.
type Configured struct {
	Name         string  // a name for people, e.g. its pod; "" when not known
	Tenant       string  // "" is shared by all tenants
	Role         Role    // its part in requests with a prefill elsewhere
	HashSeed     *string // PYTHONHASHSEED of the replica; nil when unknown
	NoEvents     bool    // it publishes no KV events on purpose
	Sidecar      bool    // a sidecar reports its KV events to the router's index; Events is empty
	KVReportFull bool    // it runs with kv_cache_report_mode full
	Cache        CacheOptions
}

// Reported is what a replica says of itself, with the configured values in place of some.
type Reported struct {
	Version       string
	Engine        string  // the owner of its models, as it says: "vllm", "sglang", another engine's name, or ""
	Models        []Model // every id it serves, or served last, sorted by ID
	BlockSize     int     // tokens per KV block; 0 when not known
	Blocks        int     // KV blocks of each rank's cache; 0 when not known
	HashAlgorithm string  // prefix_caching_hash_algo, e.g. "sha256"; "" when not known
	HashUnit      int     // prefix_match_unit; 0 when not set
	Draftless     bool    // its metrics show that no model drafts
	CacheOff      bool    // it keeps nothing of a prompt for later ones: its prefix caching is off
	Events        []EventSource
	EventsRefused string         // why event sources that it reports are not used, "" if all are
	EventsUnknown bool           // its /kv_event_sources has not answered yet
	Render        bool           // it answers the …/render routes
	Transfer      Transfer       // how it hands KV blocks to others
	SGLang        *sglang.Server // the replica's own report of its SGLang; nil: it runs another engine
}

// OtherEngine reports whether the replica says that it runs neither vLLM nor SGLang.
func (r *Replica) OtherEngine() bool { return otherEngine(r.Engine) }

// Partial reports whether the replica lists more models than are read.
func (r *Replica) Partial() bool { return len(r.Models) >= MaxModels && !r.told }

// Model is one id of a replica's /v1/models.
type Model struct {
	ID     string          // the value of a request's "model"
	Base   string          // the base model's canonical name on this replica: vLLM's first served name
	Root   string          // where the base model was loaded from: a path there, or a hub's name; "" when unknown
	LoRA   prefixhash.LoRA // the adapter with its path, or "no LoRA"
	MaxLen int             // tokens; 0 when unknown
}

// EventSource has the endpoints of one data-parallel rank's KV events.
type EventSource struct {
	Rank           int    `yaml:"rank,omitempty" unit:"data-parallel rank"` // the rank that publishes there, from 0
	Endpoint       string `yaml:"endpoint"`                                 // ZeroMQ address of its KV events, "tcp://10.0.0.1:5557"
	ReplayEndpoint string `yaml:"replay_endpoint,omitempty"`                // ZeroMQ address for missed events
	Topic          string `yaml:"topic,omitempty"`                          // beginning of the topics, "" = all
}

// Load is one rank's load from /metrics, or from SGLang's /v1/loads.
type Load struct {
	Rank             int
	Running, Waiting float64 // requests
	Deferred         float64 // waiting requests that vLLM does not schedule yet: their grammar or KV is on its way
	KVUsage          float64 // share of KV blocks in use, 0 to 1
	PrefixQueries    float64 // prompt tokens looked up in the prefix cache since its start
	PrefixHits       float64 // of these, tokens found
	Connector
	FirstTokens FirstTokens
	Answers     Answers
	Steps       float64 // 1 more than the tokens and the steps that it has counted since its start; 0 = it counts none
	Times
	LoRAs    []string  // adapters with running or waiting requests; of all ranks together
	MaxLoRAs int       // adapters it can have loaded at a time (max_lora); 0 when unknown
	Began    time.Time // start of the replica's process; zero when it does not say
	At       time.Time
}

// Computed returns the tokens of prompts that the rank has computed since its start.
func (l *Load) Computed() float64 { return l.PrefixQueries - l.PrefixHits - l.LoadedTokens }

// Connector has the counters of a rank's KV connector since its start.
type Connector struct {
	AskedTokens  float64 // prompt tokens that it has looked up
	LoadedTokens float64 // of these, tokens that it has brought
	MoveSeconds  float64 // seconds of moving blocks from other replicas, as Nixl counts them
}

// LoadOf returns the load of a rank, false when it has not reported any.
func (r *Replica) LoadOf(rank int) (Load, bool) {
	for i := range r.Load {
		if r.Load[i].Rank == rank {
			return r.Load[i], true
		}
	}
	return Load{}, false
}

// Model returns the model with a request's "model" as its name, nil when the replica does
// not serve it.
func (r *Replica) Model(id string) *Model {
	i, ok := slices.BinarySearchFunc(r.Models, id, func(m Model, id string) int { return strings.Compare(m.ID, id) })
	if !ok {
		return nil
	}
	return &r.Models[i]
}

// Candidate is a replica that serves the requested model. It is ready, or held.
type Candidate struct {
	Replica *Replica
	Model   *Model
}

type serving struct{ model, tenant string }

// Snapshot is the fleet at one moment. It is immutable, and safe for any number
// of readers.
type Snapshot struct {
	Replicas []*Replica // sorted by Addr, ready or not
	Ready    int        // the number of ready ones
	// Settled reports that every source has given a list, has failed or is late, and every
	// listed replica has answered or failed once.
	Settled bool
	Notes   []string // on sources that failed or are late
	// Named has, without addresses, the models that the settings of sources or the last process
	// name: they are known though no listed replica serves them.
	Named []*Replica

	serving map[serving]served
}

// served is a model's candidates, by address, and the model as most of them list it.
type served struct {
	list   []Candidate
	agreed *Model
}

// Base returns the base model of the replica at addr, "" if there is none or it is unknown.
func (s *Snapshot) Base(addr string) string {
	if r := s.Replica(addr); r != nil && len(r.Models) > 0 {
		return r.Models[0].Base
	}
	return ""
}

// Serving returns the ready and the held replicas that serve model and that tenant may use:
// its own and the shared ones, sorted by address. It does not allocate; the
// slice must not be changed.
func (s *Snapshot) Serving(model, tenant string) []Candidate { return s.served(model, tenant).list }

// served returns the candidates of a tenant, or those of all where it has none of its own for this model.
func (s *Snapshot) served(model, tenant string) served {
	if of, ok := s.serving[serving{model, tenant}]; ok {
		return of
	}
	return s.serving[serving{model, ""}]
}

// All returns the replicas, and behind them the models that are only named.
func (s *Snapshot) All() []*Replica { return slices.Concat(s.Replicas, s.Named) }

// Serves reports whether any replica is offered to requests, though it may be held.
func (s *Snapshot) Serves() bool { return len(s.serving) > 0 }

// Served is a base model and the number of its replicas.
type Served struct {
	Base  string
	Ready int
	All   int // ready or not: a replica that is not ready counts for its last models
}

// Models counts the replicas of every base model, sorted by name.
func (s *Snapshot) Models() []Served {
	count := map[string]Served{}
	for _, r := range s.All() {
		for _, base := range bases(r.Models) {
			c := count[base]
			c.Base = base
			if r.Addr != "" {
				c.All++
			}
			if r.Ready {
				c.Ready++
			}
			count[base] = c
		}
	}
	return slices.SortedFunc(maps.Values(count), func(a, b Served) int { return strings.Compare(a.Base, b.Base) })
}

// Replica returns the replica with that address, nil when there is none.
func (s *Snapshot) Replica(addr string) *Replica {
	i, ok := slices.BinarySearchFunc(s.Replicas, addr, func(r *Replica, addr string) int { return strings.Compare(r.Addr, addr) })
	if !ok {
		return nil
	}
	return s.Replicas[i]
}

// newSnapshot indexes replicas, which must be sorted by address.
func newSnapshot(replicas []*Replica, settled bool) *Snapshot {
	s := &Snapshot{Replicas: replicas, Settled: settled, serving: map[serving]served{}}
	for _, r := range replicas {
		if r.Ready {
			s.Ready++
		} else if !r.Held {
			continue
		}
		for i := range r.Models { // first the lists of exactly one tenant
			key := serving{r.Models[i].ID, r.Tenant}
			s.serving[key] = served{list: append(s.serving[key].list, Candidate{r, &r.Models[i]})}
		}
	}
	for key, own := range s.serving {
		all, shared := own.list, s.serving[serving{key.model, ""}].list
		if key.tenant != "" && len(shared) > 0 {
			all = append(slices.Clone(all), shared...)
			slices.SortFunc(all, func(a, b Candidate) int { return strings.Compare(a.Replica.Addr, b.Replica.Addr) })
		}
		s.serving[key] = served{all, agreed(all)}
	}
	return s
}
