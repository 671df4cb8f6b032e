package config

import (
	"fmt"
	"reflect"
)

// When says when a change of a field in the file takes effect. A field has the
// tag `applies:"…"`; one without has that of the section around it.
type When string

// The values of the tag.
const (
	AtReload  When = "reload"  // as soon as the file has been read again
	AtRestart When = "restart" // when the process is started anew
	AtEnvoy   When = "envoy"   // when Envoy is started anew, with what `extproc envoy-config` prints then
)

const appliesTag = "applies"

// Field is one setting of a configuration's type.
type Field struct {
	Path    string       // "fleet.replicas[].address"; an element of a map is "*"
	Type    reflect.Type // of the value
	Default any          // nil inside lists and maps, which are empty
	Applies When         // "" where neither it nor a section around it says

	Struct reflect.Type // where it is declared
	Name   string       // and under which name
}

// Fields returns the settings of the struct v and of everything below it, in the
// order they are declared. A section is followed by its fields and is none itself.
func Fields(v any) []Field {
	var out []Field
	walk(reflect.ValueOf(v), reflect.TypeOf(v), "", "", func(f Field) { out = append(out, f) })
	return out
}

// Live returns running with those fields of next that need no restart of the
// process.
func Live[T any](running, next T) T {
	live(reflect.ValueOf(&running).Elem(), reflect.ValueOf(next), "")
	return running
}

// live copies from next to v what needs no restart.
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

// walk visits the fields of the struct t. v is its default value, or not valid.
func walk(v reflect.Value, t reflect.Type, path string, when When, visit func(Field)) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline, skip := yamlName(f)
		if skip {
			continue
		}
		at := path
		if !inline {
			at = join(path, name)
		}
		var value reflect.Value
		if v.IsValid() {
			value = v.Field(i)
		}
		say := applies(f, when)
		elem, suffix := element(f.Type)
		switch {
		case isSection(f.Type):
			walk(value, f.Type, at, say, visit)
		case isSection(elem):
			walk(reflect.Value{}, elem, at+suffix, say, visit)
		default:
			field := Field{Path: at, Type: f.Type, Applies: say, Struct: t, Name: f.Name}
			if value.IsValid() {
				field.Default = value.Interface()
			}
			visit(field)
		}
	}
}

// element is what lists, maps and pointers hold.
func element(t reflect.Type) (reflect.Type, string) {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return t.Elem(), "[]"
	case reflect.Map:
		return t.Elem(), ".*"
	case reflect.Pointer:
		return t.Elem(), ""
	}
	return t, ""
}

// isSection reports whether t is a mapping of fields of its own, and no value.
func isSection(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return t.Kind() == reflect.Struct && !p.Implements(unmarshalerType) && !p.Implements(textUnmarshalerType)
}

// applies is f's own tag, or that of the section around it.
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
