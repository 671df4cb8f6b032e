package vllmsim

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
)

// usage has the tokens of a request.
type usage struct {
	prompt, completion int
	hit, created       int // of the last prompt only, as vLLM reports them
}

// dialect is the form in which one route answers.
type dialect interface {
	whole(texts []string, u usage) any // the body of a plain answer
	open(w *sse)                       // once the stream's headers are out
	first(w *sse, u usage)             // with the first token of all
	delta(w *sse, index int, text string, last bool)
	done(w *sse, texts []string, u usage)
}

// sse writes server-sent events, each at once.
type sse struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// send writes one event; with name "" it has no event line. If the client has left, the
// request's context says so.
func (w *sse) send(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic("vllmsim: an answer that is no JSON: " + err.Error())
	}
	w.raw(name, data)
}

func (w *sse) raw(name string, data []byte) {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(append(b, "data: "...), data...), "\n\n"...)
	_, _ = w.w.Write(b)
	_ = w.c.Flush()
}

// generate answers one of the four routes.
func (s *Sim) generate(parse parser) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.load.Add(1)
		defer s.load.Add(-1)
		g, err := parse(r)
		if err != nil {
			writeError(w, err)
			return
		}
		if n := s.faults.Load().ErrorEvery; n > 0 && s.answered.Load()%uint64(n) == 0 {
			writeError(w, errEngine)
			return
		}
		seqs, out, err := s.sequences(g)
		if err != nil {
			writeError(w, err)
			return
		}
		if g.transfer.RemoteDecode && s.faultyLeg(w, r) {
			return
		}
		if err := s.prepare(r, g, seqs); err != nil {
			writeError(w, err)
			return
		}
		engines, err := s.submit(r, seqs)
		if err != nil {
			writeError(w, err)
			return
		}
		a := &answering{s: s, g: g, seqs: seqs, out: out, texts: make([][]byte, len(seqs))}
		if !a.run(w, r) {
			for i, q := range seqs {
				engines[i].abort(q)
			}
		}
	}
}

var errEngine = &apiError{http.StatusInternalServerError, "InternalServerError", "", "EngineCore encountered an issue."}

// answering is the answer to one request.
type answering struct {
	s     *Sim
	g     *generation
	seqs  []*sequence
	out   chan token
	texts [][]byte
	u     usage

	params []byte // with which another replica can pull the prompt; nil: none
}

// run writes the answer and reports whether it is complete; if not, the caller must abort
// the sequences.
func (a *answering) run(w http.ResponseWriter, r *http.Request) bool {
	for _, p := range a.g.prompts {
		a.u.prompt += len(p.tokens)
	}
	var stream *sse
	if a.g.stream {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		stream = &sse{w, http.NewResponseController(w)}
		_ = stream.c.Flush() // vLLM sends headers at once, whatever the progress
		a.g.dialect.open(stream)
	}
	first := true
	for left := len(a.seqs); left > 0; {
		var t token
		select {
		case t = <-a.out:
		case <-r.Context().Done():
			return false
		}
		if t.gone {
			if stream == nil {
				writeError(w, errEngine)
			}
			return false
		}
		a.book(t)
		if t.last {
			left--
		}
		if stream == nil {
			continue
		}
		if first {
			a.g.dialect.first(stream, a.u)
			first = false
		}
		a.g.dialect.delta(stream, t.index, string(decode(nil, t.id)), t.last)
	}
	if stream != nil {
		a.g.dialect.done(stream, a.said(), a.u)
	} else {
		writeJSON(w, http.StatusOK, a.whole())
	}
	return true
}

// whole is the body of a plain answer.
func (a *answering) whole() any {
	body := a.g.dialect.whole(a.said(), a.u)
	if b, ok := body.(map[string]any); ok && a.params != nil && !a.s.faults.Load().LegNoParams {
		b["kv_transfer_params"] = json.RawMessage(a.params)
	}
	return body
}

// faultyLeg answers a leg for another replica as the faults in force say; false: they
// leave it alone.
func (s *Sim) faultyLeg(w http.ResponseWriter, r *http.Request) bool {
	f := s.faults.Load()
	if f.LegDelay > 0 && !sleep(r.Context(), f.LegDelay) {
		return true
	}
	switch {
	case f.LegReset:
		panic(http.ErrAbortHandler)
	case f.LegStatus != 0:
		writeError(w, &apiError{f.LegStatus, "InternalServerError", "", "vllmsim: this replica refuses to compute prompts for others, as it was told to"})
		return true
	}
	return false
}

// book adds one token. The cache's part of the usage is the last prompt's.
func (a *answering) book(t token) {
	a.u.completion++
	a.params = t.params
	if t.index == (len(a.g.prompts)-1)*a.g.n {
		a.u.hit, a.u.created = t.hit, t.created
	}
	a.texts[t.index] = decode(a.texts[t.index], t.id)
}

func (a *answering) said() []string {
	out := make([]string, len(a.texts))
	for i, t := range a.texts {
		out[i] = string(t)
	}
	return out
}

// render answers a route's /render with the prompts as tokens, and runs no sequence.
func (s *Sim) render(parse parser) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.o.NoScaleOut && s.o.Version == V032 {
			writeError(w, &apiError{http.StatusForbidden, "PermissionDeniedError", "",
				"The scale-out APIs are disabled. Start the server with --enable-scale-out to enable them."})
			return
		}
		g, err := parse(r)
		if err != nil {
			writeError(w, err)
			return
		}
		var all []any
		for i, p := range g.prompts {
			all = append(all, s.rendered(g, i, p))
		}
		if _, many := g.dialect.(*completionDialect); many {
			writeJSON(w, http.StatusOK, all)
		} else {
			writeJSON(w, http.StatusOK, all[0])
		}
	}
}

func (s *Sim) rendered(g *generation, i int, p prompt) any {
	var salt, features any
	if g.salt != "" {
		salt = g.salt
	}
	if len(p.images) > 0 {
		var hashes []string
		var places []map[string]int
		for _, m := range p.images {
			hashes = append(hashes, m.id)
			places = append(places, map[string]int{"offset": m.offset, "length": m.length})
		}
		features = map[string]any{
			"mm_hashes":       map[string]any{"image": hashes},
			"mm_placeholders": map[string]any{"image": places},
			"kwargs_data":     nil,
		}
	}
	id := g.id
	if len(g.prompts) > 1 {
		id += "-" + strconv.Itoa(i)
	}
	return map[string]any{
		"request_id": id, "token_ids": slices.Clip(p.tokens), "features": features,
		"sampling_params": map[string]any{"max_tokens": g.maxTokens, "skip_reading_prefix_cache": g.noRead},
		"model":           g.model, "stream": g.stream, "stream_options": nil, "cache_salt": salt, "priority": 0, "kv_transfer_params": nil,
	}
}
