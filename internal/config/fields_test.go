package config

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

type inner struct {
	Now   int `yaml:"now"`
	Later int `yaml:"later" applies:"restart"`
}

type outer struct {
	Live   inner            `yaml:"live" applies:"reload"`
	List   []inner          `yaml:"list" applies:"reload"`
	ByName map[string]inner `yaml:"by_name" applies:"restart"`
	Wait   time.Duration    `yaml:"wait" applies:"envoy"`
	Silent int              `yaml:"silent"`
	Hidden int              `yaml:"-"`
}

// TestFieldsAndLive: what is listed as taking effect at reload is what Live takes.
func TestFieldsAndLive(t *testing.T) {
	want := []Field{
		{Path: "live.now", Applies: AtReload, Default: 1}, {Path: "live.later", Applies: AtRestart, Default: 2},
		{Path: "list[].now", Applies: AtReload}, {Path: "list[].later", Applies: AtRestart},
		{Path: "by_name.*.now", Applies: AtRestart}, {Path: "by_name.*.later", Applies: AtRestart},
		{Path: "wait", Applies: AtEnvoy, Default: time.Second}, {Path: "silent", Default: 0},
	}
	before := outer{Live: inner{1, 2}, Wait: time.Second, Hidden: 1}
	got := Fields(before)
	same := func(a, b Field) bool { return a.Path == b.Path && a.Applies == b.Applies && a.Default == b.Default }
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("fields %+v", got)
	}
	if f := got[1]; f.Name != "Later" || f.Struct != reflect.TypeFor[inner]() || f.Type.Kind() != reflect.Int {
		t.Errorf("declared: %+v", f)
	}
	after := outer{Live: inner{3, 4}, List: []inner{{5, 6}}, ByName: map[string]inner{"a": {}}, Wait: time.Minute, Silent: 7, Hidden: 2}
	live := Live(before, after)
	if wanted := (outer{Live: inner{3, 2}, List: []inner{{5, 6}}, Wait: time.Minute, Hidden: 1}); !reflect.DeepEqual(live, wanted) {
		t.Errorf("live %+v", live)
	}
}
