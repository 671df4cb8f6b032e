package configtest

import (
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"warmroute/internal/config"
)

// Field is one setting, or a section of settings, in the reference.
type Field struct {
	Path    string      `json:"path"` // "fleet.replicas[].address"; [] is any element of a list, * any key
	Type    string      `json:"type"`
	Unit    string      `json:"unit,omitempty"` // of a number
	Default string      `json:"default,omitempty"`
	Meaning string      `json:"meaning"`
	Applies config.When `json:"applies,omitempty"` // "" for sections
	Same    string      `json:"same,omitempty"`    // an earlier field with the same fields below it, which the reference has explained
}

// Section reports whether f holds other fields and has no value of its own.
func (f Field) Section() bool { return f.Applies == "" }

// Reference explains every field of defaults, a struct, in the order of its
// fields; meaning returns the purpose of a struct's field. A field's `unit` tag is
// the unit of its number; its `default` tag is the meaning of a zero value.
func Reference(defaults any, meaning func(owner reflect.Type, field string) string) []Field {
	r := reference{meaning: meaning, seen: map[reflect.Type]string{}}
	r.fields(reflect.ValueOf(defaults), "", "", false)
	return r.out
}

type reference struct {
	meaning func(owner reflect.Type, field string) string
	out     []Field
	seen    map[reflect.Type]string // the types that have been explained, by path
}

// fields explains a struct's fields. when is the tag of the section around them.
// In a list or a mapping, which changes as one value, it holds for all of them.
func (r *reference) fields(v reflect.Value, path string, when config.When, whole bool) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, inline, skip := config.Name(f)
		switch {
		case skip:
		case inline:
			r.seen[f.Type] = path
			r.fields(v.Field(i), path, when, whole)
		case whole:
			r.field(f, v, v.Field(i), strings.TrimPrefix(path+"."+name, "."), when, whole)
		default:
			r.field(f, v, v.Field(i), strings.TrimPrefix(path+"."+name, "."), config.Applies(f, when), whole)
		}
	}
}

func (r *reference) field(f reflect.StructField, owner, v reflect.Value, path string, when config.When, whole bool) {
	out := Field{Path: path, Type: typeName(f.Type), Unit: f.Tag.Get("unit"), Meaning: r.meaning(owner.Type(), f.Name)}
	below, step, value := config.Nested(v)
	if value {
		out.Applies = when
		out.Default = defaultOf(v, f.Tag.Get("default"))
	}
	if below.IsValid() && below.NumField() > 0 {
		if first, seen := r.seen[below.Type()]; seen {
			out.Same = first
		} else {
			r.seen[below.Type()] = path
		}
	}
	r.out = append(r.out, out)
	if below.IsValid() {
		r.fields(below, path+step, when, whole || value)
	}
}

func typeName(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "duration"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Struct:
		return "section"
	case reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case reflect.Map:
		return "mapping of " + typeName(t.Elem()) + "s"
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return "integer"
}

// defaultOf prints a default in the form of the file. zero is the meaning of a
// zero value, if that is not itself.
func defaultOf(v reflect.Value, zero string) string {
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.IsZero() && zero != "":
		return zero
	case v.Kind() == reflect.Pointer, (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0:
		return "none"
	}
	text, err := yaml.Marshal(v.Interface())
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(text))
}
