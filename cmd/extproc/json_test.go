package main

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"warmroute/cmd/extproc/internal/dashboard"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/peers"
)

// TestEveryPageWritesSnakeCase: no page of the admin server writes a field by its
// Go name, at any depth.
func TestEveryPageWritesSnakeCase(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	seen := map[reflect.Type]bool{reflect.TypeFor[time.Time](): true}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
			walk(typ.Elem())
		case reflect.Struct:
			if seen[typ] {
				return
			}
			seen[typ] = true
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "-" || !f.IsExported() && !f.Anonymous {
					continue
				}
				if !(f.Anonymous && name == "") && !snake.MatchString(name) {
					t.Errorf("%s.%s is written as %q", typ, f.Name, name)
				}
				walk(f.Type)
			}
		}
	}
	for _, v := range []any{replicaView{}, decision.Record{}, decision.PressureState{}, tokenView{}, policy.Config{}, policy.Change{}, dashboard.Excerpt{}, peers.State{}} {
		walk(reflect.TypeOf(v))
	}
	if len(seen) < 15 {
		t.Errorf("%d types were seen", len(seen))
	}
}
