package tokens

import (
	"context"
	"slices"
	"strings"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
)

// ruling returns the servers by whose rules a model's prompts are rendered: those of the engine
// that most of them run, vLLM's if equally many do, and of these those of one version, if more
// than half have it.
func ruling(endpoints []Endpoint) []Endpoint {
	sglang := 0
	for i := range endpoints {
		if render.IsSGLang(endpoints[i].Version) {
			sglang++
		}
	}
	most := 2*sglang > len(endpoints)
	if sglang > 0 && sglang < len(endpoints) { // requests ask for this, too: nothing is copied otherwise
		endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return render.IsSGLang(e.Version) != most })
	}
	version, votes := "", 0 // a majority outlasts the votes against it
	for i := range endpoints {
		switch {
		case votes == 0:
			version, votes = endpoints[i].Version, 1
		case endpoints[i].Version == version:
			votes++
		default:
			votes--
		}
	}
	of := count(endpoints, func(e Endpoint) bool { return e.Version == version })
	if of == len(endpoints) || 2*of <= len(endpoints) {
		return endpoints
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return e.Version != version })
}

func count(endpoints []Endpoint, has func(Endpoint) bool) (n int) {
	for i := range endpoints {
		if has(endpoints[i]) {
			n++
		}
	}
	return n
}

// peers returns the servers that may get a request's text. The /render of a few is not used:
// they would get the texts of all requests, of which others serve most.
func peers(endpoints []Endpoint) []Endpoint {
	endpoints = ruling(endpoints)
	if len(few(endpoints)) == 0 {
		return endpoints
	}
	out := slices.Clone(endpoints)
	for i := range out {
		out[i].Render = false
	}
	return out
}

// few returns the servers that answer /render, if they are not more than half of all.
func few(endpoints []Endpoint) []Endpoint {
	n := count(endpoints, func(e Endpoint) bool { return e.Render })
	if n == 0 || 2*n > len(endpoints) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return !e.Render })
}

// Unused returns the addresses of the servers whose /render is not used for requests, because
// most servers of their model have none.
func Unused(endpoints []Endpoint) (addresses []string) {
	for _, e := range few(ruling(endpoints)) {
		addresses = append(addresses, address(e.URL))
	}
	return addresses
}

// lengths returns the longest known context of the servers, and the one to which prompts that
// may be cut are cut on most of them or on all longer ones. 0: none is known.
func lengths(endpoints []Endpoint) (longest, cut int) {
	var known []int
	for _, e := range endpoints {
		if e.MaxLen > 0 {
			known = append(known, e.MaxLen)
		}
	}
	if len(known) == 0 {
		return 0, 0
	}
	slices.Sort(known)
	return known[len(known)-1], known[(len(known)-1)/2]
}

// commonVersion returns the version that all servers run, or "" when they differ or one
// is unknown: rendering must then be right for any version.
func commonVersion(endpoints []Endpoint) string {
	if len(endpoints) == 0 || slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Version != endpoints[0].Version }) {
		return ""
	}
	return endpoints[0].Version
}

// mostAsked bounds the replicas that are asked about one difference.
const mostAsked = 5

// answers asks replicas for the ids of a request, each once, for as long as take wants more. It
// returns the error of the first one; the errors of the others leave less to take.
func (l *Local) answers(ctx context.Context, m *localModel, req *openai.Request, endpoints []Endpoint, take func(Result) (more bool)) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	for i := range mostAsked {
		r, err := l.o.Reference.Ask(ctx, req, m.name, endpoints)
		switch {
		case err != nil && i == 0:
			return err
		case err == nil && !take(r), r.by == "", ctx.Err() != nil:
			return nil
		}
		endpoints = slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return e.URL == r.by })
	}
	return nil
}

func equalPrompts(a, b []Prompt) bool {
	return slices.EqualFunc(a, b, func(a, b Prompt) bool { return slices.Equal(a.Tokens, b.Tokens) })
}

// Dissent is a replica that returned other ids of a model than this process, or than other replicas, alone.
type Dissent struct {
	Model    string
	Replica  string    // its address
	Features string    // of the request; "": it was compared with other replicas
	Position int       // the first token that differs
	Shunned  bool      // others agree on other ids, so requests are not asked of this one
	At       time.Time // of the last difference
}

// dissents keeps that a replica returned other ids, and with shun ends that requests are asked of
// it, until it returns those of this process again.
func (l *Local) dissents(m *localModel, c computed, r Result, shun bool) {
	position, _ := firstDifference(c.ids, r.Prompts)
	if shun {
		l.o.Reference.paces.shun(r.by, true)
	}
	t := &m.trust
	t.mu.Lock()
	if t.dissent == nil {
		t.dissent = map[string]Dissent{}
	}
	old, had := t.dissent[r.by]
	t.dissent[r.by] = Dissent{m.name, address(r.by), c.features.String(), position, shun || old.Shunned, l.o.Now()}
	t.mu.Unlock()
	if !had {
		l.o.Log.Warn("a replica's token ids differ from this process's, and no other replica's agree with them; only predictions for that replica may be wrong",
			"model", m.name, "replica", address(r.by), "request_features", c.features.String(), "first_difference_at_token", position, "asked_for_requests", !shun)
	}
}

// forget drops the dissent of replicas.
func (l *Local) forget(m *localModel, of func(url string) bool) {
	m.trust.mu.Lock()
	defer m.trust.mu.Unlock()
	l.o.Reference.forgive(m.trust.dissent, of)
}

// restart forgets all evidence: the servers have changed.
func (l *Local) restart(m *localModel) {
	l.forget(m, func(string) bool { return true })
	m.trust.reset()
}

// address returns the address in a replica's URL.
func address(url string) string {
	if _, addr, ok := strings.Cut(url, "://"); ok {
		return addr
	}
	return url
}
