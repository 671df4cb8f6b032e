package vllmsim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"reflect"
	"time"
)

// A replica with the connector Nixl that computed a prompt for another replica hands it
// out: it keeps the prompt's blocks, and its answer has parameters with which the other
// replica can pull them. It accepts the parameters once, unchanged, before its lease ends,
// for the prompt that they were made from.

// Nixl is the connector that a replica can have: P hands blocks out, and D pulls them.
const Nixl = "NixlConnector"

// maxRetired bounds the number of ended handouts that a rank remembers.
const maxRetired = 4096

// Why a replica refuses to hand blocks out: the label of vllmsim_transfer_refused_total.
const (
	refusedUnknown = "unknown" // no handout of this replica has this name
	refusedChanged = "changed" // the parameters are not as they were given
	refusedForeign = "foreign" // they were made from another prompt
	refusedUsed    = "used"    // they were used before
	refusedLate    = "late"    // their lease is over
)

// handout is the blocks of one prompt that wait to be pulled.
type handout struct {
	params  []byte // as given
	prompt  string // its fingerprint
	tables  []table
	claimed bool
	lease   *time.Timer
}

// handouts are those of one rank; its engine's lock guards them.
type handouts struct {
	open    map[string]*handout // by the name of the request
	retired map[string]string   // the reason to refuse the name from now on
	order   []string            // the names in retired, oldest first
}

func newHandouts() handouts {
	return handouts{open: map[string]*handout{}, retired: map[string]string{}}
}

// handoutParams are the parameters in P's answer, in vLLM's order.
type handoutParams struct {
	RemotePrefill bool     `json:"do_remote_prefill"`
	RemoteDecode  bool     `json:"do_remote_decode"`
	Blocks        [][]int  `json:"remote_block_ids"`
	Engine        string   `json:"remote_engine_id"`
	Request       string   `json:"remote_request_id"`
	Host          string   `json:"remote_host"`
	Port          int      `json:"remote_port"`
	TP            int      `json:"tp_size"`
	DCP           int      `json:"dcp_size"`
	PP            int      `json:"pp_size"`
	Tokens        int      `json:"remote_num_tokens"`
	Expiry        *float64 `json:"remote_blocks_expiry_time"`
	Mode          string   `json:"transfer_mode"`
	Cached        int      `json:"remote_prefill_cached_tokens"`
}

// handOutLocked keeps the blocks of s for another replica, and returns the parameters to
// pull them with.
func (e *engine) handOutLocked(s *sequence) []byte {
	g := handoutParams{
		RemotePrefill: true, Engine: e.id, Request: fmt.Sprintf("%s-%016x", s.leg.request, rand.Uint64()), Host: s.leg.host, Port: s.leg.port,
		TP: 1, DCP: 1, PP: 1, Tokens: s.prompt, Mode: "pull", Cached: s.hit, Blocks: [][]int{{}},
	}
	for _, b := range s.tables[0].blocks {
		g.Blocks[0] = append(g.Blocks[0], b.id)
	}
	raw, _ := json.Marshal(g) // numbers and strings
	h := &handout{params: raw, prompt: s.fingerprint(), tables: s.tables}
	h.lease = time.AfterFunc(e.o.Lease, func() { e.expire(g.Request) })
	e.handouts.open[g.Request] = h
	s.tables = e.tables()
	return raw
}

// fingerprint names the prompt of s, with everything that its KV depends on.
func (s *sequence) fingerprint() string {
	b := fmt.Appendf(nil, "%q %v ", s.salt, s.images)
	if s.lora != nil {
		b = fmt.Appendf(b, "%q ", s.lora.Name)
	}
	for _, t := range s.tokens[:s.prompt] {
		b = binary.LittleEndian.AppendUint32(b, t)
	}
	d := sha256.Sum256(b)
	return hex.EncodeToString(d[:])
}

// claim checks the parameters that another replica was given, and keeps the blocks for
// it. It returns the reason to refuse them, "" if they are right.
func (e *engine) claim(request string, params []byte, prompt string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := e.handouts.open[request]
	switch {
	case h == nil:
		if why := e.handouts.retired[request]; why != "" {
			return why
		}
		return refusedUnknown
	case h.claimed:
		return refusedUsed
	case !sameMembers(h.params, params):
		return refusedChanged
	case h.prompt != prompt:
		return refusedForeign
	}
	h.claimed = true
	h.lease.Reset(e.o.Lease) // vLLM's D extends the lease for as long as it waits
	return ""
}

// sameMembers reports whether two JSON texts differ in white space and in the order of
// members at most: what a sidecar may change that decodes parameters and encodes them again.
func sameMembers(a, b []byte) bool {
	decode := func(text []byte, into *any) error {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		return d.Decode(into)
	}
	var x, y any
	return decode(a, &x) == nil && decode(b, &y) == nil && reflect.DeepEqual(x, y)
}

// pulled frees the blocks of a handout that another replica has pulled.
func (e *engine) pulled(request string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.endLocked(request, refusedUsed) {
		e.stats.nixl.afterExpiry++
	}
}

// expire ends a handout whose lease is over.
func (e *engine) expire(request string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.endLocked(request, refusedLate) {
		e.stats.nixl.expired++
	}
}

func (e *engine) endLocked(request, why string) bool {
	h := e.handouts.open[request]
	if h == nil {
		return false
	}
	h.lease.Stop()
	delete(e.handouts.open, request)
	for _, t := range h.tables {
		e.pool.release(t.blocks)
	}
	e.handouts.retired[request] = why
	e.handouts.order = append(e.handouts.order, request)
	if len(e.handouts.order) > maxRetired {
		delete(e.handouts.retired, e.handouts.order[0])
		e.handouts.order = e.handouts.order[1:]
	}
	e.poke() // a waiting sequence may have room now
	return true
}

// The routes between replicas: their side channel. It has no counterpart in vLLM, whose
// replicas speak NIXL's own protocol.
const (
	claimPath  = "/vllmsim/claim"
	pulledPath = "/vllmsim/pulled"
)

// claimed is the body of both routes.
type claimed struct {
	Request string `json:"request"`
	Params  []byte `json:"params,omitempty"`
	Prompt  string `json:"prompt,omitempty"`
}

func (s *Sim) claim(w http.ResponseWriter, r *http.Request) {
	var c claimed
	if err := readJSON(r, &c); err != nil {
		writeError(w, err)
		return
	}
	why := refusedUnknown
	for _, k := range s.ranks {
		if why = k.claim(c.Request, c.Params, c.Prompt); why != refusedUnknown {
			break
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"refused": why})
}

func (s *Sim) pulled(w http.ResponseWriter, r *http.Request) {
	var c claimed
	if err := readJSON(r, &c); err != nil {
		writeError(w, err)
		return
	}
	for _, k := range s.ranks {
		if k.hasHandedOut(c.Request) {
			k.pulled(c.Request)
		}
	}
}

func (e *engine) hasHandedOut(request string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.handouts.open[request] != nil || e.handouts.retired[request] != ""
}

// leg says that the answer hands the prompt's blocks out, and where they are pulled from.
type leg struct {
	request string
	host    string
	port    int
}

// legOf returns the leg of a request that r brought.
func (s *Sim) legOf(r *http.Request, g *generation) *leg {
	at, _ := s.http.Addr().(*net.TCPAddr)
	l := &leg{request: g.id, host: at.IP.String(), port: at.Port}
	if at.IP.IsUnspecified() { // every interface: the name under which the client knows this replica
		if host, _, err := net.SplitHostPort(r.Host); err == nil {
			l.host = host
		}
	}
	return l
}
