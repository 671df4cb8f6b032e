package configtest

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"warmroute/internal/config"
)

type inner struct {
	Now   int `yaml:"now" unit:"apples"`
	Later int `yaml:"later" applies:"restart" default:"7"`
}

type outer struct {
	Live   inner            `yaml:"live" applies:"reload"`
	List   []inner          `yaml:"list" applies:"reload"`
	ByName map[string]inner `yaml:"by_name" applies:"restart"`
	Wait   time.Duration    `yaml:"wait" applies:"envoy"`
	Silent int              `yaml:"silent"`
	Hidden int              `yaml:"-"`
}

// explained is the reference of an outer.
func explained(o outer) []Field {
	return Reference(o, func(owner reflect.Type, field string) string { return owner.Name() + "." + field + "." })
}

// TestReferenceAndLive: Live takes exactly the fields that the reference lists as
// taking effect at reload, and Differences names those that differ.
func TestReferenceAndLive(t *testing.T) {
	before := outer{Live: inner{1, 2}, Wait: time.Second, Hidden: 1}
	want := []Field{
		{Path: "live", Type: "section", Meaning: "outer.Live."},
		{Path: "live.now", Type: "integer", Unit: "apples", Default: "1", Applies: config.AtReload, Meaning: "inner.Now."},
		{Path: "live.later", Type: "integer", Default: "2", Applies: config.AtRestart, Meaning: "inner.Later."},
		{Path: "list", Type: "list of sections", Default: "none", Applies: config.AtReload, Same: "live", Meaning: "outer.List."},
		{Path: "list[].now", Type: "integer", Unit: "apples", Default: "0", Applies: config.AtReload, Meaning: "inner.Now."},
		{Path: "list[].later", Type: "integer", Default: "7", Applies: config.AtReload, Meaning: "inner.Later."},
		{Path: "by_name", Type: "mapping of sections", Default: "none", Applies: config.AtRestart, Same: "live", Meaning: "outer.ByName."},
		{Path: "by_name.*.now", Type: "integer", Unit: "apples", Default: "0", Applies: config.AtRestart, Meaning: "inner.Now."},
		{Path: "by_name.*.later", Type: "integer", Default: "7", Applies: config.AtRestart, Meaning: "inner.Later."},
		{Path: "wait", Type: "duration", Default: "1s", Applies: config.AtEnvoy, Meaning: "outer.Wait."},
		{Path: "silent", Type: "integer", Default: "0", Meaning: "outer.Silent."},
	}
	if got := explained(before); !slices.Equal(got, want) {
		t.Errorf("reference\n%+v, want\n%+v", got, want)
	}
	after := outer{Live: inner{3, 4}, List: []inner{{5, 6}}, ByName: map[string]inner{"a": {}}, Wait: time.Minute, Silent: 7, Hidden: 2}
	live := config.Live(before, after)
	if wanted := (outer{Live: inner{3, 2}, List: []inner{{5, 6}}, Wait: time.Minute, Hidden: 1}); !reflect.DeepEqual(live, wanted) {
		t.Errorf("live %+v", live)
	}
	for when, want := range map[config.When][]string{config.AtReload: {"list", "live.now"}, config.AtRestart: {"by_name", "live.later"}, config.AtEnvoy: {"wait"}} {
		if got := config.Differences(before, after, when); !slices.Equal(got, want) {
			t.Errorf("%s: %v differ, want %v", when, got, want)
		}
	}
	same := before
	same.List, same.ByName = []inner{}, map[string]inner{} // written without elements
	if got := slices.Concat(config.Differences(before, same, config.AtReload), config.Differences(before, same, config.AtRestart)); len(got) > 0 {
		t.Errorf("%v differ and say the same", got)
	}
}
