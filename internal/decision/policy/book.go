package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Book holds every model's Settings and changes them at run time. Readers get
// immutable values and never wait.
type Book struct {
	mu  sync.Mutex // one change at a time
	cur atomic.Pointer[edition]
}

// edition is one version of all settings. It is immutable.
type edition struct {
	version uint64
	config  Config
	general *Settings
	models  map[string]*Settings
	idle    bool // every policy is disabled
}

// Change describes the effect of a call of Patch or Replace, for the log.
type Change struct {
	Version uint64   `json:"version"`
	Model   string   `json:"model"`  // "" = the default policy, or all of it
	Fields  []string `json:"fields"` // "name: old -> new", sorted; empty when nothing changed
}

// NewBook returns a book with c, which it validates.
func NewBook(c Config) (*Book, error) {
	b := &Book{}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	b.cur.Store(newEdition(1, c))
	return b, nil
}

func newEdition(version uint64, c Config) *edition {
	e := &edition{version: version, config: Config{c.Overrides.clone(), map[string]Overrides{}, c.Sessions}, models: map[string]*Settings{}}
	general := c.Overrides.applyTo(DefaultSettings())
	general.Version, general.Sessions = version, c.Sessions
	e.general, e.idle = &general, general.Policy == NameDisabled
	for id, o := range c.Models {
		s := o.applyTo(general)
		e.config.Models[id], e.models[id] = o.clone(), &s
		e.idle = e.idle && s.Policy == NameDisabled
	}
	return e
}

// Of returns the settings of the first of a model's names that has any, else those of
// the default policy.
func (b *Book) Of(names ...string) *Settings {
	e := b.cur.Load()
	for _, name := range names {
		if s := e.models[name]; s != nil {
			return s
		}
	}
	return e.general
}

// Idle reports whether every policy is disabled: then requests need not be read.
func (b *Book) Idle() bool { return b.cur.Load().idle }

// Config returns the configuration in use and its version. Callers must not change it.
func (b *Book) Config() (Config, uint64) {
	e := b.cur.Load()
	return e.config, e.version
}

// Replace replaces all settings, as after a reload of the configuration file.
func (b *Book) Replace(c Config) (Change, error) {
	if err := c.Validate(); err != nil {
		return Change{}, fmt.Errorf("policy: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.cur.Load()
	next := newEdition(old.version+1, c)
	fields := differences("", old.config.Overrides, next.config.Overrides)
	ids := maps.Clone(old.config.Models)
	maps.Copy(ids, next.config.Models)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		fields = append(fields, differences("models."+id+".", old.config.Models[id], next.config.Models[id])...)
	}
	if c.Sessions != old.config.Sessions {
		fields = append(fields, fmt.Sprintf("sessions: %v -> %v", old.config.Sessions, c.Sessions))
	}
	if len(fields) == 0 {
		return Change{Version: old.version}, nil
	}
	b.cur.Store(next)
	return Change{Version: next.version, Fields: fields}, nil
}

// Patch changes the overrides of a model id by a JSON object with the field names of
// Overrides; "" is the default policy. An absent field stays, and null sets the default.
// An unknown name or an invalid value changes nothing.
func (b *Book) Patch(model string, body []byte) (Change, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.cur.Load()
	before := old.config.Overrides
	if model != "" {
		before = old.config.Models[model]
	}
	after, err := before.patched(body)
	if err != nil {
		return Change{}, fmt.Errorf("policy: %w", err)
	}
	change := Change{Version: old.version, Model: model, Fields: differences("", before, after)}
	if len(change.Fields) == 0 {
		return change, nil
	}
	c := Config{old.config.Overrides, maps.Clone(old.config.Models), old.config.Sessions}
	switch {
	case model == "":
		c.Overrides = after
	case after.empty():
		delete(c.Models, model)
	default:
		c.Models[strings.Clone(model)] = after
	}
	change.Version++
	b.cur.Store(newEdition(change.Version, c))
	return change, nil
}

// patched returns o after a patch. encoding/json implements PATCH: an absent key leaves
// a field, null makes a pointer nil.
func (o Overrides) patched(body []byte) (Overrides, error) {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(body, &keys); err != nil || keys == nil {
		return o, errors.New("the patch is not a JSON object")
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(names(), key) { // json accepts other letter cases of the same name
			return o, fmt.Errorf("%s: there is no such field; the fields are %s", key, strings.Join(names(), ", "))
		}
	}
	o = o.clone()
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&o); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return o, fmt.Errorf("%s: a %s is not a %s", wrong.Field, wrong.Value, wrong.Type)
		}
		return o, fmt.Errorf("the patch cannot be read: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return o, errors.New("the patch is more than one JSON object")
	}
	if err := o.Validate(); err != nil {
		return o, err
	}
	isNull := func(_ string, v *float64) bool { return v == nil }
	maps.DeleteFunc(o.TTFT, isNull)
	maps.DeleteFunc(o.PrefillDecode, isNull)
	return o, nil
}

func (o Overrides) empty() bool { return len(differences("", Overrides{}, o)) == 0 }

// names returns the field names of Overrides, in their order.
func names() []string {
	t := reflect.TypeFor[Overrides]()
	out := make([]string, t.NumField())
	for i := range out {
		out[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return out
}

// differences lists the fields that changed, as "name: old -> new".
func differences(at string, old, now Overrides) []string {
	a, b := old.values(), now.values()
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var out []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if a[key] != b[key] {
			out = append(out, fmt.Sprintf("%s%s: %s -> %s", at, key, cmp.Or(a[key], unset), cmp.Or(b[key], unset)))
		}
	}
	return out
}

// unset stands for a field without a value.
const unset = "default"

// values returns the set fields as text, by name.
func (o Overrides) values() map[string]string {
	out := map[string]string{}
	v := reflect.ValueOf(o)
	for i, name := range names() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			out[name] = fmt.Sprint(f.Elem().Interface())
		}
	}
	add := func(at string, values map[string]*float64) {
		for name, v := range values {
			if v != nil {
				out[at+name] = fmt.Sprint(*v)
			}
		}
	}
	add("ttft.", o.TTFT)
	add("prefill_decode.", o.PrefillDecode)
	return out
}
