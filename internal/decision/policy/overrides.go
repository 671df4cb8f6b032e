package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"warmroute/internal/problems"
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

// Config is the policy section of the configuration: the default policy, and
// the settings of single models by their served ids.
type Config struct {
	Overrides `yaml:",inline"`
	Models    map[string]Overrides `yaml:"models,omitempty" json:"models,omitempty"` // what differs for a model, by its served name

	// Sessions say how cold prompts of every model are held. They stay in changes at run time; the
	// file has none of them.
	Sessions Sessions `yaml:"-" json:"-"`
}

// Validate returns every problem of c, one sentence each.
func (c Config) Validate() error {
	var p problems.List
	p.Add("", c.Overrides.Validate())
	for _, model := range slices.Sorted(maps.Keys(c.Models)) {
		p.Refuse(model == "", "models", "a model id must not be empty")
		p.Add("models."+model+".", c.Models[model].Validate())
	}
	return p.Err()
}

// Validate returns every problem of o, one sentence each.
func (o Overrides) Validate() error {
	var p problems.List
	if k := o.RoutePolicy; k != nil {
		p.Refuse(*k != NameTTFT && *k != NameBalance && *k != NameDisabled, "route_policy", "%q is not one of %s, %s, %s", *k, NameTTFT, NameBalance, NameDisabled)
	}
	if v := o.MaxTTFT; v != nil {
		p.Refuse(!(*v >= 0 && !math.IsInf(*v, 1)), "max_ttft_seconds", "%v is not 0 (no limit) or a positive number", *v)
	}
	if v := o.MinPrefixMatch; v != nil {
		p.Refuse(!(*v >= 0 && *v <= 1), "min_prefix_match", "%v is not from 0 to 1", *v)
	}
	if v := o.BalanceAbs; v != nil {
		p.Refuse(*v < 0, "balance_abs_threshold", "%v is not 0 or more", *v)
	}
	if v := o.BalanceRel; v != nil {
		p.Refuse(!(*v == 0 || *v >= 1 && !math.IsInf(*v, 1)), "balance_rel_threshold", "%v is not 0 (no relative limit) or at least 1", *v)
	}
	p.Add("ttft.", problemsOf(fieldsOf(new(TTFT)), o.TTFT))
	p.Add("prefill_decode.", problemsOf(fieldsOf(new(PrefillDecode)), o.PrefillDecode))
	return p.Err()
}

// fieldsOf returns the fields of constants by their names.
func fieldsOf[T TTFT | PrefillDecode](of *T) map[string]*float64 {
	v, out := reflect.ValueOf(of).Elem(), map[string]*float64{}
	for i := range v.NumField() {
		out[v.Type().Field(i).Tag.Get("yaml")] = v.Field(i).Addr().Interface().(*float64)
	}
	return out
}

// gone are the constants that releases had, with what holds instead.
var gone = map[string]string{
	"adapter_load": "loading a LoRA adapter counts 0.05 s, and evicting one as much",
	"beta":         "a request pays for 20 decode steps of running requests",
	"burst_add":    fmt.Sprintf("the burst guard adds %v requests to the mean", burstAdd),
	"guard_add":    fmt.Sprintf("the guard adds %v requests to the mean", guardAdd),
	"lower_tier":   "what a token below the GPU costs is learned, or set by load_token",
}

// mostConstant bounds constants, so that prices stay numbers that can be compared and printed.
const mostConstant = 1e12

// positive is the constant that is more than 0, as the others may be: or every request would cost 0.
const positive = "prefill_token"

// problemsOf returns every problem of constants that are set, of the known ones.
func problemsOf(known, values map[string]*float64) error {
	var p problems.List
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		switch {
		case gone[name] != "":
			p.Refuse(true, name, "this constant is gone: %s; leave it out", gone[name])
		case known[name] == nil:
			p.Refuse(true, name, "there is no such constant; the constants are %s", strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case v == nil:
		case *v > mostConstant:
			p.Refuse(true, name, "%v is above %v", *v, mostConstant)
		case name == positive:
			p.Refuse(!(*v > 0), name, "%v is not a positive number", *v)
		default:
			p.Refuse(!(*v >= 0), name, "%v is not 0 or a positive number", *v)
		}
	}
	return p.Err()
}

// applyTo returns s with the fields that o sets.
func (o Overrides) applyTo(s Settings) Settings {
	set(&s.Policy, o.RoutePolicy)
	set(&s.HintCold, o.HintWhenCold)
	set(&s.MaxTTFT, o.MaxTTFT)
	set(&s.Balance.MinMatch, o.MinPrefixMatch)
	set(&s.Balance.Abs, o.BalanceAbs)
	set(&s.Balance.Rel, o.BalanceRel)
	ttft, apart := fieldsOf(&s.TTFT), fieldsOf(&s.PrefillDecode)
	for name, v := range o.TTFT {
		set(ttft[name], v)
	}
	for name, v := range o.PrefillDecode {
		set(apart[name], v)
	}
	return s
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// clone returns a deep copy of o, which is valid.
func (o Overrides) clone() (out Overrides) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		panic(err) // finite numbers and texts alone
	}
	return out
}
