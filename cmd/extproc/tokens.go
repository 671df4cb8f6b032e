package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/bound"
	"warmroute/internal/decision"
	"warmroute/internal/feed/cachelayout"
	"warmroute/internal/fleet"
	"warmroute/internal/modelfiles"
	"warmroute/internal/problems"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// TokensConfig describes how token ids are found.
type TokensConfig struct {
	Download     bool          `yaml:"download"`                     // fetch tokenizers from the hub, unless HF_HUB_OFFLINE forbids it
	KeepTexts    bool          `yaml:"keep_texts" applies:"restart"` // keep messages of recent prompts in 64 MB of memory, to read next turns faster
	DownloadMiB  int           `yaml:"download_mib" unit:"MiB"`      // most that a process fetches from the hub
	MaxLoadedMiB int           `yaml:"max_loaded_mib" unit:"MiB"`    // memory for tokenizers, with stores of prompts' beginnings
	Models       []ModelConfig `yaml:"models,omitempty"`             // models whose files are configured, not found
	Trust        []string      `yaml:"trust,omitempty"`              // features to use although no replica can confirm their token ids
}

// Validate returns every problem, joined.
func (c TokensConfig) Validate() error {
	var p problems.List
	seen := map[string]bool{}
	for i, m := range c.Models {
		at := fmt.Sprintf("models[%d].", i)
		p.Refuse(seen[m.ID], at+"id", "%q is listed twice", m.ID)
		seen[m.ID] = true
		p.Add(at, m.Validate())
	}
	_, err := c.trusted()
	p.Add("", err)
	p.Refuse(c.DownloadMiB <= 0, "download_mib", "%d is not positive", c.DownloadMiB)
	p.Refuse(c.MaxLoadedMiB <= 0, "max_loaded_mib", "%d is not positive", c.MaxLoadedMiB)
	return p.Err()
}

// trusted returns Trust as a set.
func (c TokensConfig) trusted() (set openai.Features, err error) {
	all := openai.AllFeatures()
	for i, name := range c.Trust {
		at := slices.IndexFunc(all, func(f openai.Features) bool { return f.String() == name })
		if at < 0 {
			return 0, fmt.Errorf("trust[%d]: %q is none of %s", i, name, strings.ReplaceAll((^openai.Features(0)).String(), "+", ", "))
		}
		set |= all[at]
	}
	return set, nil
}

// renderConns bounds the idle connections per replica for requests of token ids:
// a busy moment has as many under way.
const renderConns = 16

// ids finds prompts' token ids, in process and by asking replicas.
type ids struct {
	log       *slog.Logger
	replicas  *replicas
	turns     *work.Turns // of long bodies
	remote    *tokens.Remote
	local     *tokens.Local
	library   *tokens.Library
	hub       *modelfiles.Hub               // nil: this machine has no Hugging Face cache
	models    atomic.Pointer[[]ModelConfig] // that are configured
	discovery *tokens.Discovery             // of these, and of others that replicas serve
	download  atomic.Bool                   // tokens.download
	start     time.Time
	begun     atomic.Bool // the configured models were loaded once, or were not waited for any longer
}

func newIDs(c Config, k *replicas, log *slog.Logger, reg prometheus.Registerer) (*ids, error) {
	t := &ids{log: log, replicas: k, turns: work.NewTurns(forLongWork()), start: time.Now(), library: tokens.NewLibrary(int64(c.Tokens.MaxLoadedMiB) << 20)}
	t.models.Store(&c.Tokens.Models)
	client, err := c.Fleet.HTTP.Client(renderConns)
	if err != nil {
		return nil, err
	}
	trusted, err := c.Tokens.trusted()
	if err != nil {
		return nil, err
	}
	questions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_token_questions_total", Help: "Questions for token ids to replicas, by outcome.",
	}, []string{"outcome"})
	reg.MustRegister(questions)
	t.remote = tokens.NewRemote(tokens.RemoteOptions{
		Endpoints: func(served tokens.Served) []tokens.Endpoint { return t.renderers(k.fleet.Snapshot(), served) },
		Client:    client, Budget: c.Filter.TokenBudget, Answers: &k.answers,
		Questioned: func(outcome string) { questions.WithLabelValues(outcome).Inc() },
	})
	t.local = tokens.NewLocal(tokens.LocalOptions{
		Reference: t.remote, Endpoints: func(model string) []tokens.Endpoint { return t.serving(k.fleet.Snapshot(), model) }, Base: t.base,
		TrustUnverified: trusted, Turns: t.turns, Hooks: tokenMetrics(reg), Log: log,
	})
	if t.hub, err = modelfiles.New(os.Getenv); err != nil {
		log.Warn("model files are searched by path only", "error", err)
	} else {
		t.hub.Limit(int64(c.Tokens.DownloadMiB) << 20)
	}
	t.download.Store(c.Tokens.Download)
	t.discovery = tokens.NewDiscovery(tokens.DiscoveryOptions{
		Wanted: t.wanted, Hub: t.hub, Download: t.download.Load, Local: t.local, Library: t.library, Files: t.describe, Log: log,
	})
	modelMetrics(reg, t.library, t.hub)
	return t, nil
}

// Run loads tokenizers and compares ids until ctx ends, and questions under way have ended.
func (t *ids) Run(ctx context.Context) error {
	defer t.remote.Close()
	return together(ctx, t.local.Run, t.discovery.Run)
}

// wanted lists the models that are configured, or served with the flags' defaults.
func (t *ids) wanted() map[string]tokens.Wanted {
	out := map[string]tokens.Wanted{}
	for base, root := range t.replicas.fleet.Snapshot().Roots() {
		out[base] = tokens.Wanted{Root: root}
	}
	for _, m := range *t.models.Load() {
		f, _ := m.flags() // validated
		out[m.ID] = tokens.Wanted{Root: m.ref(), Flags: f, Configured: true}
	}
	return out
}

// set applies another configuration to the sources of token ids.
func (t *ids) set(next TokensConfig) {
	trusted, _ := next.trusted() // validated
	t.local.Trust(trusted)
	t.library.Limit(int64(next.MaxLoadedMiB) << 20)
	if t.hub != nil {
		t.hub.Limit(int64(next.DownloadMiB) << 20)
	}
	former := t.models.Swap(&next.Models)
	if t.download.Swap(next.Download) != next.Download || !reflect.DeepEqual(*former, next.Models) {
		t.discovery.Again()
	}
}

// describe reads from a model's files what its layers keep in the cache.
func (t *ids) describe(model, folder string) {
	l, err := cachelayout.Read(folder)
	if err != nil {
		t.log.Debug("a model's files do not tell what its layers keep in the cache", "model", model, "error", err)
	}
	t.replicas.feed.Layout(model, l)
}

// renderers lists the replicas that may get a request's text to return its token
// ids: the ready ones that may be named for it.
func (t *ids) renderers(s *fleet.Snapshot, served tokens.Served) []tokens.Endpoint {
	var out []tokens.Endpoint
	for _, c := range s.Serving(served.Model, served.Tenant) {
		if c.Replica.Ready && decision.InSubset(c.Replica.Addr, served.Subset) {
			out = append(out, t.endpoint(c.Replica, c.Model))
		}
	}
	return out
}

// serving lists the replicas of a model, of all tenants.
func (t *ids) serving(s *fleet.Snapshot, model string) []tokens.Endpoint {
	var out []tokens.Endpoint
	for _, rep := range s.Replicas {
		if m := rep.Model(model); m != nil && rep.Ready && m.Base == model && !m.LoRA.Set {
			out = append(out, t.endpoint(rep, m))
		}
	}
	return out
}

func (t *ids) endpoint(rep *fleet.Replica, m *fleet.Model) tokens.Endpoint {
	busy := 0.0
	for _, l := range rep.Load {
		busy += l.Running + l.Waiting
	}
	return tokens.Endpoint{URL: t.replicas.fleet.URL(rep.Addr), Version: rep.Version, Render: rep.Render, MaxLen: m.MaxLen, Busy: busy}
}

// base returns the base model of a served id.
func (t *ids) base(served tokens.Served) string {
	if m := t.replicas.fleet.Snapshot().Agreed(served.Model, served.Tenant); m != nil {
		return m.Base
	}
	return served.Model
}

// tokenView is shown with decisions: features that are demoted, and where tokenizers were
// found.
type tokenView struct {
	Demoted    []tokens.Demotion `json:"demoted,omitempty"`
	Tokenizers []tokens.Found    `json:"tokenizers,omitempty"`
}

// view returns what concerns the model of a decision, or all models.
func (t *ids) view(of *decision.Record) tokenView {
	v := tokenView{Demoted: t.demotions(), Tokenizers: t.discovery.Found()}
	if of == nil {
		return v
	}
	base := t.base(tokens.Served{Model: cmp.Or(of.Model, of.Asked), Tenant: of.Tenant})
	v.Demoted = slices.DeleteFunc(v.Demoted, func(d tokens.Demotion) bool { return d.Model != base })
	v.Tokenizers = slices.DeleteFunc(v.Tokenizers, func(f tokens.Found) bool { return f.Model != base })
	return v
}

func (t *ids) demotions() (out []tokens.Demotion) {
	for _, s := range t.local.Status() {
		out = append(out, s.Demoted...)
	}
	return out
}

// notes lists the problems with tokenizers and with the ids of the replicas in s.
func (t *ids) notes(s *fleet.Snapshot, now time.Time) []string {
	return append(t.modelNotes(now), t.tokenNotes(s)...)
}

// tokenNotes names what is not computed in process any more and the replicas that ended it, the
// replicas whose ids differ from all others', and those whose /render is not used.
func (t *ids) tokenNotes(s *fleet.Snapshot) (notes []string) {
	for _, d := range t.demotions() {
		notes = append(notes, fmt.Sprintf("tokens of model %q: %s is not computed in process, because %s returned other ids (the first at token %d)",
			d.Model, d.Feature, strings.Join(d.By, " and "), d.Position))
	}
	for _, m := range t.local.Status() {
		for _, d := range m.Dissent {
			state := "no other replica has confirmed or contradicted it"
			if d.Shunned {
				state = "another replica contradicts it, and no request is sent to it for its ids"
			}
			notes = append(notes, fmt.Sprintf("tokens of model %q: %s returned other ids than this process for %s (the first at token %d); %s",
				d.Model, d.Replica, d.Features, d.Position, state))
		}
	}
	for _, d := range t.remote.Dissents() {
		state := "which is right is not known"
		if d.Shunned {
			state = "no request is sent to it for its ids"
		}
		notes = append(notes, fmt.Sprintf("tokens of model %q: %s returned other ids than other replicas for the same text (the first at token %d); %s",
			d.Model, d.Replica, d.Position, state))
	}
	for base := range s.Roots() {
		if unused := tokens.Unused(t.serving(s, base)); len(unused) > 0 {
			notes = append(notes, fmt.Sprintf("tokens of model %q: no request is sent to the /render of %s, because most of its replicas have none", base, strings.Join(unused, ", ")))
		}
	}
	slices.Sort(notes)
	notes = slices.Compact(notes) // a replica may serve several tenants
	return bound.Notes(notes, mostStuck, "notes about token ids")
}

// tokenMetrics registers the metrics of in-process token ids.
func tokenMetrics(reg prometheus.Registerer) tokens.Hooks {
	vec := func(name, help, label string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"model", label})
		reg.MustRegister(v)
		return v
	}
	checks := vec("warmroute_token_checks_total", "In-process token ids compared with a replica's, by outcome.", "outcome")
	demoted := vec("warmroute_token_demotions_total", "Features whose ids are no longer computed in process, because they differed; setting: single values of requests.", "feature")
	refused := vec("warmroute_token_refusals_total", "Requests whose ids were not computed in process, by cause.", "cause")
	return tokens.Hooks{
		Checked: func(model, outcome string) { checks.WithLabelValues(model, outcome).Inc() },
		Demoted: func(model, feature string) { demoted.WithLabelValues(model, feature).Inc() },
		Refused: func(model, why string) { refused.WithLabelValues(model, why).Inc() },
	}
}
