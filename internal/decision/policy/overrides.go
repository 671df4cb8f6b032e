package policy

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Overrides are the Settings that an operator has set. A nil field has its default; an
// explicit 0 is a value like any other.
type Overrides struct {
	RoutePolicy    *Name     `yaml:"route_policy,omitempty" json:"route_policy,omitempty"`                                            // ttft, filter-then-score or disabled
	HintWhenCold   *bool     `yaml:"hint_when_cold,omitempty" json:"hint_when_cold,omitempty"`                                        // name a replica even if none has any block
	MaxTTFT        *float64  `yaml:"max_ttft_seconds,omitempty" json:"max_ttft_seconds,omitempty" unit:"seconds"`                     // no hint (429 in endpoint-picker mode) if every first token is expected later; 0 = no limit
	MinPrefixMatch *float64  `yaml:"min_prefix_match,omitempty" json:"min_prefix_match,omitempty" unit:"share of the prompt, 0 to 1"` // under filter-then-score, the least match that counts; also for `pressure`
	BalanceAbs     *int      `yaml:"balance_abs_threshold,omitempty" json:"balance_abs_threshold,omitempty" unit:"requests"`          // under filter-then-score, how many more requests than the least loaded replica one may have
	BalanceRel     *float64  `yaml:"balance_rel_threshold,omitempty" json:"balance_rel_threshold,omitempty" unit:"factor"`            // under filter-then-score, how many times as many, plus 1; 0 = no such limit
	TTFT           Constants `yaml:"ttft,omitempty" json:"ttft,omitempty"`                                                            // constants of the policy ttft
	PrefillDecode  Apart     `yaml:"prefill_decode,omitempty" json:"prefill_decode,omitempty"`                                        // prices of a prefill on another replica
}

// Constants are constants of TTFT by the names of its fields.
type Constants map[string]*float64

// Keys returns the names, with their defaults.
func (Constants) Keys() any { return DefaultTTFT() }

// Apart are constants of PrefillDecode by the names of its fields.
type Apart map[string]*float64

// Keys returns the names, with their defaults.
func (Apart) Keys() any { return PrefillDecode{} }

// DefaultOverrides returns overrides that set every setting to its default.
func DefaultOverrides() Overrides {
	s := DefaultSettings()
	return Overrides{
		RoutePolicy: &s.Policy, HintWhenCold: &s.HintCold, MaxTTFT: &s.MaxTTFT,
		MinPrefixMatch: &s.Balance.MinMatch, BalanceAbs: &s.Balance.Abs, BalanceRel: &s.Balance.Rel,
	}
}

// Config is the policy section of the configuration: the default policy, and
// the settings of single models by their served ids.
type Config struct {
	Overrides `yaml:",inline"`
	Models    map[string]Overrides `yaml:"models,omitempty" json:"models,omitempty"` // what differs for a model, by its served name

	// Sessions say how cold prompts of every model are held. They stay in changes at run time; the
	// file has none of them.
	Sessions Sessions `yaml:"-" json:"-"`
}

// constant is a field of T with its smallest valid value. All are finite.
type constant[T any] struct {
	of      func(*T) *float64
	least   float64
	greater bool // above least, not at it
}

// apart are PrefillDecode's fields by name.
var apart = map[string]constant[PrefillDecode]{
	"theta": {func(p *PrefillDecode) *float64 { return &p.Theta }, 0, false},
}

// constants are TTFT's fields by name. The prefill of a token costs more than 0, or every
// request would cost 0.
var constants = map[string]constant[TTFT]{
	"prefill_token": {func(t *TTFT) *float64 { return &t.PrefillToken }, 0, true},
	"prefill_pair":  {func(t *TTFT) *float64 { return &t.PrefillPair }, 0, false},
	"decode_token":  {func(t *TTFT) *float64 { return &t.DecodeToken }, 0, false},
	"lambda":        {func(t *TTFT) *float64 { return &t.Lambda }, 0, false},
	"kappa":         {func(t *TTFT) *float64 { return &t.Kappa }, 0, false},
	"guard":         {func(t *TTFT) *float64 { return &t.Guard }, 0, false},
	"burst_guard":   {func(t *TTFT) *float64 { return &t.BurstGuard }, 0, false},
	"space":         {func(t *TTFT) *float64 { return &t.Space }, 0, false},
	"load_token":    {func(t *TTFT) *float64 { return &t.LoadToken }, 0, false},
}

// Validate returns every problem of c, one sentence each.
func (c Config) Validate() error {
	problems := c.Overrides.problems("")
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		if model == "" {
			problems = append(problems, errors.New("models: a model id must not be empty"))
		}
		problems = append(problems, c.Models[model].problems("models."+model+".")...)
	}
	return errors.Join(problems...)
}

// Validate returns every problem of o, one sentence each.
func (o Overrides) Validate() error { return errors.Join(o.problems("")...) }

func (o Overrides) problems(at string) []error {
	var problems []error
	bad := func(field string, value any, want string) {
		problems = append(problems, fmt.Errorf("%s%s: %v is not %s", at, field, value, want))
	}
	if k := o.RoutePolicy; k != nil && *k != NameTTFT && *k != NameBalance && *k != NameDisabled {
		problems = append(problems, fmt.Errorf("%sroute_policy: %q is not one of %s, %s, %s", at, *k, NameTTFT, NameBalance, NameDisabled))
	}
	if v := o.MaxTTFT; v != nil && !(*v >= 0 && finite(*v)) {
		bad("max_ttft_seconds", *v, "0 (no limit) or a positive number")
	}
	if v := o.MinPrefixMatch; v != nil && !(*v >= 0 && *v <= 1) {
		bad("min_prefix_match", *v, "from 0 to 1")
	}
	if v := o.BalanceAbs; v != nil && *v < 0 {
		bad("balance_abs_threshold", *v, "0 or more")
	}
	if v := o.BalanceRel; v != nil && !(*v == 0 || *v >= 1 && finite(*v)) {
		bad("balance_rel_threshold", *v, "0 (no relative limit) or at least 1")
	}
	problems = append(problems, problemsOf(at+"ttft.", constants, o.TTFT)...)
	problems = append(problems, problemsOf(at+"prefill_decode.", apart, o.PrefillDecode)...)
	return problems
}

// gone are the constants that earlier versions had, with what holds instead.
var gone = map[string]string{
	"adapter_load": "loading a LoRA adapter counts 0.05 s, and evicting one as much",
	"bandwidth":    "75,000 tokens a second are moved between two replicas, until it is learned",
	"beta":         "a request pays for 20 decode steps of running requests",
	"burst_add":    "the burst guard adds 1.25 requests to the mean",
	"guard_add":    "the guard adds 4 requests to the mean",
	"handover":     "a move of a KV cache begins 0.05 s after the prefill, until it is learned",
	"junction":     "half of the prefill that extends a match is deducted",
	"lower_tier":   "what a token below the GPU costs is learned, or set by load_token",
}

// mostConstant bounds constants, so that prices stay numbers that can be compared and printed.
const mostConstant = 1e12

// problemsOf returns every problem of constants that are set, by their names behind at.
func problemsOf[T any](at string, known map[string]constant[T], values map[string]*float64) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		c, ok := known[name]
		v := values[name]
		switch {
		case gone[name] != "":
			problems = append(problems, fmt.Errorf("%s%s: this constant is gone: %s; leave it out", at, name, gone[name]))
		case !ok:
			problems = append(problems, fmt.Errorf("%s%s: there is no such constant; the constants are %s", at, name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
		case v == nil:
		case *v > mostConstant:
			problems = append(problems, fmt.Errorf("%s%s: %v is above %v", at, name, *v, mostConstant))
		case c.greater && !(*v > c.least && finite(*v)):
			problems = append(problems, fmt.Errorf("%s%s: %v is not a positive number", at, name, *v))
		case !(*v >= c.least && finite(*v)):
			problems = append(problems, fmt.Errorf("%s%s: %v is not 0 or a positive number", at, name, *v))
		}
	}
	return problems
}

func finite(v float64) bool { return !math.IsInf(v, 0) && !math.IsNaN(v) }

// applyTo returns s with the fields that o sets.
func (o Overrides) applyTo(s Settings) Settings {
	set(&s.Policy, o.RoutePolicy)
	set(&s.HintCold, o.HintWhenCold)
	set(&s.MaxTTFT, o.MaxTTFT)
	set(&s.Balance.MinMatch, o.MinPrefixMatch)
	set(&s.Balance.Abs, o.BalanceAbs)
	set(&s.Balance.Rel, o.BalanceRel)
	for name, v := range o.TTFT {
		set(constants[name].of(&s.TTFT), v)
	}
	for name, v := range o.PrefillDecode {
		set(apart[name].of(&s.PrefillDecode), v)
	}
	return s
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// clone returns a deep copy of o.
func (o Overrides) clone() Overrides {
	o.RoutePolicy, o.HintWhenCold, o.MaxTTFT = copyOf(o.RoutePolicy), copyOf(o.HintWhenCold), copyOf(o.MaxTTFT)
	o.MinPrefixMatch, o.BalanceAbs, o.BalanceRel = copyOf(o.MinPrefixMatch), copyOf(o.BalanceAbs), copyOf(o.BalanceRel)
	o.TTFT, o.PrefillDecode = copiesOf(o.TTFT), copiesOf(o.PrefillDecode)
	return o
}

func copiesOf[M ~map[string]*float64](values M) M {
	out := make(M, len(values))
	for name, v := range values {
		out[name] = copyOf(v)
	}
	return out
}

func copyOf[T any](v *T) *T {
	if v == nil {
		return nil
	}
	w := *v
	return &w
}
