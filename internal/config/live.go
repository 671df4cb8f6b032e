package config

import (
	"fmt"
	"reflect"
	"slices"
)

// When says when a change of a field in the file takes effect. A field has the
// tag `applies:"…"`; a field without it has the tag of the section around it.
type When string

// The values of the tag.
const (
	AtReload  When = "reload"  // as soon as the file has been read again
	AtRestart When = "restart" // when the process is restarted
	AtEnvoy   When = "envoy"   // in the process at reload, in Envoy when it is started with the output of a later `extproc envoy-config`
)

const appliesTag = "applies"

// Of returns the paths among paths whose settings of v take effect at w.
func Of(v any, w When, paths []string) (out []string) {
	for _, f := range Reference(v, func(reflect.Type, string) string { return "" }) {
		if f.Applies == w && slices.Contains(paths, f.Path) {
			out = append(out, f.Path)
		}
	}
	return out
}

// Live returns running with the fields of next that need no restart of the
// process.
func Live[T any](running, next T) T {
	live(reflect.ValueOf(&running).Elem(), reflect.ValueOf(next), "")
	return running
}

// live copies the fields that need no restart from next to v.
func live(v, next reflect.Value, when When) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if _, _, skip := yamlName(f); skip || !f.IsExported() {
			continue
		}
		at := applies(f, when)
		switch {
		case isSection(f.Type):
			live(v.Field(i), next.Field(i), at)
		case at == AtReload || at == AtEnvoy:
			v.Field(i).Set(next.Field(i))
		}
	}
}

// isSection reports whether t is a mapping of fields of its own, and no value.
func isSection(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Struct && !p.Implements(unmarshalerType) && !p.Implements(textUnmarshalerType)
}

// applies returns f's own tag, or the tag of the section around it.
func applies(f reflect.StructField, around When) When {
	tag, ok := f.Tag.Lookup(appliesTag)
	if !ok {
		return around
	}
	switch w := When(tag); w {
	case AtReload, AtRestart, AtEnvoy:
		return w
	}
	panic(fmt.Sprintf("config: the tag %s of %s is %q", appliesTag, f.Name, tag)) // a mistake in the program
}
