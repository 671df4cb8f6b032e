package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/bound"
	"warmroute/internal/modelfiles"
	"warmroute/internal/problems"
	"warmroute/internal/tokens"
	"warmroute/render"
)

// ModelConfig has a model's files and the flags of its servers. ID
// is needed; the rest mirrors vLLM's flags of the same names.
type ModelConfig struct {
	ID            string            `yaml:"id"`                                            // the base model's served name, required
	Files         string            `yaml:"files,omitempty"`                               // folder with tokenizer and chat template, or a hub's owner/name[@revision]; "" = `id`
	ChatTemplate  string            `yaml:"chat_template,omitempty"`                       // file of the servers' --chat-template
	ContentFormat string            `yaml:"chat_template_content_format,omitempty"`        // the servers' --chat-template-content-format: auto, string or openai
	DefaultKwargs string            `yaml:"default_chat_template_kwargs,omitempty"`        // the servers' --default-chat-template-kwargs, a JSON object
	ExcludeTools  bool              `yaml:"exclude_tools_when_tool_choice_none,omitempty"` // the servers' --exclude-tools-when-tool-choice-none is set
	TokenizerMode string            `yaml:"tokenizer_mode,omitempty"`                      // the servers' own --tokenizer-mode
	Timezone      string            `yaml:"timezone,omitempty"`                            // the servers' time zone, for the date; "" = UTC
	Transformers  string            `yaml:"transformers,omitempty"`                        // version of the servers' transformers package
	EffortMap     map[string]string `yaml:"reasoning_effort_map,omitempty"`                // the servers' --reasoning-effort-map: efforts in requests, and in prompts
}

// Validate returns every problem that shows without loading, joined.
func (c ModelConfig) Validate() error {
	var p problems.List
	p.Refuse(c.ID == "", "id", "is missing")
	p.Refuse(!slices.Contains([]string{"", "auto", "string", "openai"}, c.ContentFormat), "chat_template_content_format", "%q is none of auto, string, openai", c.ContentFormat)
	if c.DefaultKwargs != "" {
		text, err := render.AppendJSON(nil, []byte(c.DefaultKwargs))
		p.Add("default_chat_template_kwargs: ", err)
		p.Refuse(err == nil && text[0] != '{', "default_chat_template_kwargs", "%q is not a JSON object", c.DefaultKwargs)
	}
	for _, effort := range slices.Sorted(maps.Keys(c.EffortMap)) {
		known := render.IsEffort(effort)
		p.Refuse(!known, "reasoning_effort_map", "%q is no reasoning effort of vLLM", effort)
		p.Refuse(known && c.EffortMap[effort] == "", "reasoning_effort_map", "%q is mapped to nothing", effort)
	}
	_, err := time.LoadLocation(c.Timezone)
	p.Refuse(err != nil, "timezone", "%q is not known", c.Timezone)
	return p.Err()
}

func (c ModelConfig) flags() (tokens.Flags, error) {
	f := tokens.Flags{
		ChatTemplate: c.ChatTemplate, ContentFormat: c.ContentFormat, ExcludeTools: c.ExcludeTools, TokenizerMode: c.TokenizerMode,
		EffortMap: c.EffortMap, Transformers: c.Transformers,
	}
	if c.DefaultKwargs != "" {
		f.DefaultKwargs = json.RawMessage(c.DefaultKwargs)
	}
	var err error
	f.Location, err = time.LoadLocation(c.Timezone)
	return f, err
}

// ref returns where the model's files are, a folder or a hub's name.
func (c ModelConfig) ref() string { return cmp.Or(c.Files, c.ID) }

// checkFiles reports where the files of every model are, as comments, or every problem
// with them.
func (c Config) checkFiles() (notes string, err error) {
	hub, err := modelfiles.New(os.Getenv)
	if err != nil {
		return "", err
	}
	var errs []error
	for i, m := range c.Tokens.Models {
		dir, err := hub.Find(m.ref())
		switch {
		case err == nil:
			notes += fmt.Sprintf("# model %q: files in %s\n", m.ID, dir)
		case errors.Is(err, modelfiles.ErrNotFound) && !filepath.IsAbs(m.ref()):
			notes += fmt.Sprintf("# model %q: files of %q are not on this machine; serve downloads them from the hub\n", m.ID, m.ref())
		default:
			errs = append(errs, fmt.Errorf("tokens.models[%d].files: %q: %w", i, m.ref(), err))
		}
	}
	return notes, errors.Join(errs...)
}

// stuckAfter is the time after which work for a model is reported.
const stuckAfter = 10 * time.Second

// ready names the configured models that are not loaded yet. A router that starts waits for each until
// its loading fails, and as long as stuckAfter in all: replicas compute its ids meanwhile.
func (t *ids) ready() error {
	if t.begun.Load() || time.Since(t.start) >= stuckAfter {
		t.begun.Store(true)
		return nil
	}
	ended := map[string]bool{}
	for _, f := range t.discovery.Found() {
		ended[f.Model] = !f.At.IsZero()
	}
	var errs []error
	for _, m := range *t.models.Load() {
		if !ended[m.ID] {
			errs = append(errs, fmt.Errorf("tokens of model %q: its files are being loaded", m.ID))
		}
	}
	t.begun.Store(len(errs) == 0)
	return errors.Join(errs...)
}

// modelNotes reports the models whose work off the request path takes long, with the
// phase, the models whose tokenizer cannot be fetched or loaded, and the reason why nothing
// is downloaded.
func (t *ids) modelNotes(now time.Time) (notes []string) {
	busy := slices.Concat(t.discovery.Busy(), t.local.Busy())
	for _, b := range busy {
		if took := now.Sub(b.Since); took >= stuckAfter && len(notes) < mostStuck {
			notes = append(notes, fmt.Sprintf("tokens of model %q: %s for %v", b.Model, b.Phase, took.Round(time.Second)))
		}
	}
	var failed []string
	for _, f := range t.discovery.Found() {
		if !f.Failed && (f.Error == "" || !filepath.IsAbs(f.Root)) {
			continue
		}
		failed = append(failed, fmt.Sprintf("tokens of model %q: replicas compute them, because its tokenizer %q cannot be found, fetched or loaded: %s", f.Model, f.Root, f.Error))
	}
	notes = append(notes, bound.Notes(failed, mostStuck, "models have tokenizers that cannot be fetched or loaded")...)
	if t.hub != nil {
		if err := t.hub.Paused(); err != nil {
			notes = append(notes, "tokenizers: "+err.Error())
		}
	}
	return notes
}

// mostStuck bounds the models in one report.
const mostStuck = 20

// modelMetrics registers the metrics of loaded and downloaded models.
func modelMetrics(reg prometheus.Registerer, library *tokens.Library, hub *modelfiles.Hub) {
	reg.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "warmroute_tokenizers_bytes", Help: "Estimated memory of loaded tokenizers, with their stores' limits."}, func() float64 { return float64(library.Stats().Bytes) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warmroute_tokenizer_download_bytes_total", Help: "Bytes of tokenizer files fetched from the hub."}, func() float64 {
			if hub == nil {
				return 0
			}
			return float64(hub.Downloaded())
		}),
	)
}
