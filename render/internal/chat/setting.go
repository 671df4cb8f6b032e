package chat

import (
	"bytes"
	"hash/maphash"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// settingSeed keys the hashes of settings, so that no client can choose two that are equal.
var settingSeed = maphash.MakeSeed()

// setting returns a hash of what a request says beside its conversation, as far as the
// servers' flags may give single values another meaning: the effort that the client asks
// for, kwargs that the template reads, thinking switched off, tools that must not be called,
// and tools that the server runs. The hash also tells which part of the template reads them.
// 0: it says nothing of this.
func (r *Renderer) setting(req *request, p *prompt) uint64 {
	if p.asked == "" && p.kwargs == nil && p.served == nil && req.Raw(openai.FieldThinking) == nil && req.Raw(openai.FieldToolChoice) == nil {
		return 0
	}
	return r.said(req, p)
}

// said is setting for a request that may say something.
func (r *Renderer) said(req *request, p *prompt) uint64 {
	var h maphash.Hash
	h.SetSeed(settingSeed)
	var room [128]byte
	said := false
	say := func(name string, value any) {
		said = true
		h.WriteString(name)
		text, err := pyvalue.AppendDumps(room[:0], value, pyvalue.DumpOptions{ItemSep: ",", KeySep: ":", Work: p.work})
		if err == nil {
			h.Write(text)
		}
		h.WriteByte(0)
	}
	if p.asked != "" {
		say("effort", p.asked)
	}
	if bytes.Contains(req.Raw(openai.FieldThinking), []byte(`"disabled"`)) {
		say("thinking", nil)
	}
	if req.Raw(openai.FieldTools) != nil && bytes.Contains(req.Raw(openai.FieldToolChoice), []byte(`"none"`)) {
		say("uncalled", nil)
	}
	for _, tool := range p.served {
		say("tool", tool)
	}
	if p.kwargs != nil {
		for k, v := range p.kwargs.All() {
			name, _ := k.(string)
			if v != nil && v != "auto" && r.reads(name) {
				say(name, v)
			}
		}
	}
	if !said {
		return 0
	}
	say("tools", p.tools != nil) // a template may read the value without them alone,
	say("answer", p.generation)  // or where the answer begins
	return max(1, h.Sum64())
}

// reads reports whether a prompt may depend on a kwarg: vLLM hands a template only those
// that it reads, and its own code any.
func (r *Renderer) reads(name string) bool {
	for _, t := range []*template{r.plain, r.tooled} {
		if t != nil && t.variables[name] {
			return true
		}
	}
	return r.coded
}

// mapEffort sets the effort that the servers make of the client's.
func (r *Renderer) mapEffort(p *prompt) {
	p.asked = p.effort
	if to, ok := r.o.EffortMap[p.effort]; ok {
		p.effort = to
	}
}
