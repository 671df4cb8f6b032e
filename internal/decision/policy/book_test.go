package policy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"warmroute/render/testkit/must"
)

func ptr[T any](v T) *T { return &v }

func newBook(t *testing.T, c Config) *Book {
	t.Helper()
	b := must.Get(NewBook(c))(t)
	return b
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	s := newBook(t, Config{}).Of("whoever")
	if s.Policy != NameTTFT || !s.HintCold || s.MaxTTFT != 0 || s.Balance != (Balance{0.3, 2, 1.5}) || s.TTFT != DefaultTTFT() {
		t.Errorf("%+v", s)
	}
}

func TestAModelsSettingsLieOverTheDefaultPolicy(t *testing.T) {
	b := newBook(t, Config{
		Overrides: Overrides{BalanceAbs: ptr(7), TTFT: map[string]*float64{"lambda": ptr(5.0)}},
		Models: map[string]Overrides{"m": {RoutePolicy: ptr(NameBalance), MinPrefixMatch: ptr(0.0), BalanceAbs: ptr(0),
			TTFT: map[string]*float64{"kappa": ptr(0.0)}}},
	})
	m, other := b.Of("m"), b.Of("unknown")
	if m.Policy != NameBalance || m.Balance.MinMatch != 0 || m.Balance.Abs != 0 || m.TTFT.Lambda != 5 || m.TTFT.Kappa != 0 {
		t.Errorf("m: %+v", m)
	}
	if other.Policy != NameTTFT || other.Balance.MinMatch != 0.3 || other.Balance.Abs != 7 || other.TTFT.Lambda != 5 || other.TTFT.Kappa != 0.7 {
		t.Errorf("a model without settings: %+v", other)
	}
	if b.Of("alias", "m") != m {
		t.Error("the second name was not looked up")
	}
}

// TestPatch is the semantics: absent stays, null is the default, 0 is 0.
func TestPatch(t *testing.T) {
	b := newBook(t, Config{})
	steps := []struct {
		patch string
		want  string // the differences from the defaults then
		log   string
	}{
		{`{"min_prefix_match": 0, "balance_abs_threshold": 0, "ttft": {"lambda": 4, "kappa": 0}}`,
			"0 0 1.5 4 0", "balance_abs_threshold: default -> 0, min_prefix_match: default -> 0, ttft.kappa: default -> 0, ttft.lambda: default -> 4"},
		{`{"balance_rel_threshold": 0}`, "0 0 0 4 0", "balance_rel_threshold: default -> 0"},
		{`{}`, "0 0 0 4 0", ""},
		{`{"balance_rel_threshold": 0}`, "0 0 0 4 0", ""},
		{`{"min_prefix_match": null, "ttft": {"lambda": null}}`, "0.3 0 0 3 0", "min_prefix_match: 0 -> default, ttft.lambda: 4 -> default"},
		{`{"ttft": null, "balance_abs_threshold": 1}`, "0.3 1 0 3 0.7", "balance_abs_threshold: 0 -> 1, ttft.kappa: 0 -> default"},
		{`{"balance_abs_threshold": null, "balance_rel_threshold": null}`, "0.3 2 1.5 3 0.7",
			"balance_abs_threshold: 1 -> default, balance_rel_threshold: 0 -> default"},
	}
	version := b.Of("m").Version
	for _, step := range steps {
		before, was := b.Of("m"), *b.Of("m")
		change, err := b.Patch("m", []byte(step.patch))
		if err != nil {
			t.Fatalf("%s: %v", step.patch, err)
		}
		s := b.Of("m")
		if got := fmt.Sprint(s.Balance.MinMatch, s.Balance.Abs, s.Balance.Rel, s.TTFT.Lambda, s.TTFT.Kappa); got != step.want {
			t.Errorf("%s: %s, want %s", step.patch, got, step.want)
		}
		if got := strings.Join(change.Fields, ", "); got != step.log {
			t.Errorf("%s: logged %q, want %q", step.patch, got, step.log)
		}
		if step.log != "" {
			version++
		}
		if change.Version != version || s.Version != version {
			t.Errorf("%s: version %d and %d, want %d", step.patch, change.Version, s.Version, version)
		}
		if *before != was {
			t.Errorf("%s: changed settings that a request may hold", step.patch)
		}
	}
	if c, _ := b.Config(); len(c.Models) != 0 {
		t.Errorf("a model without overrides is still there: %+v", c.Models)
	}
}

func TestARefusedPatchChangesNothing(t *testing.T) {
	b := newBook(t, Config{Overrides: Overrides{BalanceAbs: ptr(4)}})
	before := b.Of("m")
	for patch, want := range map[string]string{
		`{"balance_abs_threshold": 1, "min_prefix_match": 1.5}`: "min_prefix_match: 1.5 is not from 0 to 1",
		`{"min_prefix_match": -0.1}`:                            "min_prefix_match: -0.1 is not from 0 to 1",
		`{"balance_abs_threshold": -1}`:                         "balance_abs_threshold: -1 is not 0 or more",
		`{"balance_abs_threshold": 1.5}`:                        "balance_abs_threshold: a number 1.5 is not a int",
		`{"balance_rel_threshold": 0.5}`:                        "balance_rel_threshold: 0.5 is not 0 (no relative limit) or at least 1",
		`{"max_ttft_seconds": -1}`:                              "max_ttft_seconds: -1 is not 0 (no limit) or a positive number",
		`{"route_policy": "tttf"}`:                              `route_policy: "tttf" is not one of ttft, filter-then-score, disabled`,
		`{"route_policy": 5}`:                                   "route_policy: a number is not a policy.Name",
		`{"route_polcy": "ttft"}`:                               "route_polcy: there is no such field",
		`{"Route_Policy": "ttft"}`:                              "Route_Policy: there is no such field",
		`{"ttft": {"lamda": 1}}`:                                "ttft.lamda: there is no such constant",
		`{"ttft": {"space": 1e308}}`:                            "ttft.space: 1e+308 is above 1e+12",
		`{"prefill_decode": {"theta": 1.1e12}}`:                 "prefill_decode.theta: 1.1e+12 is above 1e+12",
		`{"ttft": {"prefill_token": 0}}`:                        "ttft.prefill_token: 0 is not a positive number",
		`{"ttft": {"lower_tier": 0.75}}`:                        "ttft.lower_tier: this constant is gone",
		`{"ttft": {"guard_add": 8}}`:                            "ttft.guard_add: this constant is gone: the guard adds 8 requests to the mean",
		`{"ttft": {"beta": 20}}`:                                "ttft.beta: this constant is gone: a request pays for 20",
		`{"ttft": {"load_token": -1}}`:                          "ttft.load_token: -1 is not 0 or a positive number",
		`{"ttft": {"guard": -1}}`:                               "ttft.guard: -1 is not 0 or a positive number",
		`[]`:                                                    "the patch is not a JSON object",
		`null`:                                                  "the patch is not a JSON object",
		``:                                                      "the patch is not a JSON object",
		`{"hint_when_cold": tru`:                                "the patch is not a JSON object",
	} {
		for _, model := range []string{"", "m"} {
			_, err := b.Patch(model, []byte(patch))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", patch, err, want)
			}
		}
	}
	if b.Of("m") != before {
		t.Error("a refused patch made a new version")
	}
}

// TestOneValidator: PATCH and the configuration file refuse the same values by the same
// sentence, every problem at once.
func TestOneValidator(t *testing.T) {
	_, err := NewBook(Config{
		Overrides: Overrides{MinPrefixMatch: ptr(2.0), BalanceRel: ptr(0.5)},
		Models:    map[string]Overrides{"m": {RoutePolicy: ptr(Name("x")), TTFT: map[string]*float64{"mu": nil}}, "": {}},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"min_prefix_match: 2 is not", "balance_rel_threshold: 0.5 is not", `models.m.route_policy: "x" is not`,
		"models.m.ttft.mu: there is no such constant", "a model id must not be empty"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
}

func TestReplaceTellsWhatChanged(t *testing.T) {
	b := newBook(t, Config{Models: map[string]Overrides{"gone": {HintWhenCold: ptr(false)}}})
	change, err := b.Replace(Config{Overrides: Overrides{HintWhenCold: ptr(false)}, Models: map[string]Overrides{"new": {RoutePolicy: ptr(NameDisabled)}}})
	want := []string{"hint_when_cold: default -> false", "models.gone.hint_when_cold: false -> default", "models.new.route_policy: default -> disabled"}
	if err != nil || !slices.Equal(change.Fields, want) || change.Version != 2 {
		t.Errorf("%+v, %v", change, err)
	}
	config, _ := b.Config()
	if change, err := b.Replace(config); err != nil || change.Version != 2 || len(change.Fields) != 0 {
		t.Errorf("the same again: %+v, %v", change, err)
	}
}

func TestIdleWhenEverythingIsDisabled(t *testing.T) {
	b := newBook(t, Config{Overrides: Overrides{RoutePolicy: ptr(NameDisabled)}})
	if !b.Idle() {
		t.Error("not idle")
	}
	if _, err := b.Patch("m", []byte(`{"route_policy":"ttft"}`)); err != nil || b.Idle() {
		t.Errorf("idle with one model on, %v", err)
	}
}

func TestReadersSeeWholeVersions(t *testing.T) {
	b := newBook(t, Config{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if s := b.Of("m"); s.Balance.MinMatch != 0.3 && s.Balance.MinMatch != float64(s.Balance.Abs)/100 {
					t.Errorf("parts of two versions: %+v", s.Balance)
					return
				}
			}
		})
	}
	for i := range 100 {
		if _, err := b.Patch("m", fmt.Appendf(nil, `{"min_prefix_match":%g,"balance_abs_threshold":%d}`, float64(i)/100, i)); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"route_policy":"disabled","ttft":{"lambda":1,"kappa":null}}`))
	f.Add([]byte(`{"min_prefix_match":1e999}`))
	f.Fuzz(func(t *testing.T, patch []byte) {
		b := newBook(t, Config{})
		if _, err := b.Patch("m", patch); err != nil && b.Of("m").Version != 1 {
			t.Error("a refused patch changed something")
		}
		if c, _ := b.Config(); c.Validate() != nil {
			t.Errorf("%s was accepted and is not valid", patch)
		}
	})
}
