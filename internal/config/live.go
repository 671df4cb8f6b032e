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

// Live returns running with the fields of next that need no restart of the
// process.
func Live[T any](running, next T) T {
	each(reflect.ValueOf(&running).Elem(), reflect.ValueOf(next), "", "", func(_ string, at When, v, next reflect.Value) {
		if at == AtReload || at == AtEnvoy {
			v.Set(next)
		}
	})
	return running
}

// Differences returns the fields in which two configurations differ and whose changes take
// effect at w, by their paths, sorted. A list and a mapping are one field.
func Differences[T any](a, b T, w When) (paths []string) {
	each(reflect.ValueOf(a), reflect.ValueOf(b), "", "", func(path string, at When, x, y reflect.Value) {
		empty := (x.Kind() == reflect.Slice || x.Kind() == reflect.Map) && x.Len()+y.Len() == 0 // absent, or written without elements
		if at == w && !empty && !reflect.DeepEqual(x.Interface(), y.Interface()) {
			paths = append(paths, path)
		}
	})
	slices.Sort(paths)
	return paths
}

// each calls f for every field below two values of one type that is no section, with its path.
// when is the tag of the section around them.
func each(a, b reflect.Value, path string, when When, f func(path string, at When, a, b reflect.Value)) {
	for i := range a.NumField() {
		of := a.Type().Field(i)
		name, inline, skip := Name(of)
		if skip || !of.IsExported() {
			continue
		}
		at, below := Applies(of, when), join(path, name)
		if inline {
			below = path
		}
		if isSection(of.Type) {
			each(a.Field(i), b.Field(i), below, at, f)
		} else {
			f(below, at, a.Field(i), b.Field(i))
		}
	}
}

// isSection reports whether t is a mapping of fields of its own, and no value.
func isSection(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Struct && !p.Implements(unmarshalerType) && !p.Implements(textUnmarshalerType)
}

// Applies returns f's own tag, or the tag of the section around it.
func Applies(f reflect.StructField, around When) When {
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
