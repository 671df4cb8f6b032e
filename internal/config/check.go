package config

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Limits on the shape of a file. Nothing real comes near them; they bound the size
// to which aliases can expand a small file.
const (
	maxDepth = 64
	maxNodes = 200_000
)

var (
	durationType        = reflect.TypeFor[time.Duration]()
	unmarshalerType     = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// checker walks a document together with the type it will be decoded into and
// collects its mistakes, with the path of each field. It also expands variables, in
// place.
type checker struct {
	file     string
	lookup   func(string) (string, bool)
	problems []*Problem
	nodes    int
	full     bool
	original map[*yaml.Node]string // expanded scalars as they stand in the file
	bad      []*yaml.Node
	lines    lines
	unit     string // of the field whose value is checked
	removed  func(path string) string
}

// Removed is implemented by a configuration that once had more fields: it says of such a
// field's path, with [] for any element of a list, what holds instead; "" if it never was one.
type Removed interface{ Removed(path string) string }

// document checks root against the value that v points to. It removes reported parts
// from root, so that the rest decodes and can be validated as well.
func (c *checker) document(root *yaml.Node, v any) {
	if r, ok := v.(Removed); ok {
		c.removed = r.Removed
	}
	c.check(root, reflect.TypeOf(v).Elem(), "", 0)
	for _, n := range c.bad {
		*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
	}
}

func (c *checker) addf(n *yaml.Node, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	c.problems = append(c.problems, &Problem{File: c.file, Line: n.Line, Err: errors.New(text)})
	c.bad = append(c.bad, n)
}

func (c *checker) check(n *yaml.Node, t reflect.Type, path string, depth int) {
	c.nodes++
	if c.full || depth > maxDepth || c.nodes > maxNodes {
		if !c.full {
			c.addf(n, path, "the document has more than %d values with those that its aliases repeat, or is nested more than %d deep", maxNodes, maxDepth)
			c.full = true
		}
		return
	}
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		c.check(n.Alias, t, path, depth+1)
		return
	}
	if n.Kind == yaml.ScalarNode {
		c.expand(n, path)
	}
	if n.ShortTag() == "!!null" {
		return
	}
	if t.Kind() == reflect.Pointer {
		c.check(n, t.Elem(), path, depth)
		return
	}
	p := reflect.PointerTo(t)
	switch {
	case t == durationType:
		c.duration(n, path)
	case p.Implements(unmarshalerType), p.Implements(textUnmarshalerType):
		c.scalar(n, t, path)
	case t.Kind() == reflect.Struct:
		c.mapping(n, fieldsOf(t), nil, path, depth)
	case t.Kind() == reflect.Map:
		c.mapping(n, nil, t.Elem(), path, depth)
	case t.Kind() == reflect.Slice || t.Kind() == reflect.Array:
		c.sequence(n, t.Elem(), path, depth)
	case t.Kind() == reflect.Interface:
	default:
		c.scalar(n, t, path)
	}
}

// mapping checks a mapping against a struct's fields, or against one element
// type when fields is nil.
func (c *checker) mapping(n *yaml.Node, fields map[string]field, elem reflect.Type, path string, depth int) {
	if n.Kind != yaml.MappingNode {
		c.addf(n, path, "%s is not a mapping of fields", c.show(n))
		return
	}
	c.lines.note(n, path)
	seen := make(map[string]bool, len(n.Content)/2)
	kept := n.Content[:0:0]
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.ShortTag() == "!!merge" {
			c.merge(value, fields, elem, path, depth)
			kept = append(kept, key, value)
			continue
		}
		at := join(path, key.Value)
		if seen[key.Value] {
			c.addf(key, at, "is given more than once")
			continue
		}
		seen[key.Value] = true
		t := elem
		if fields != nil {
			f, known := fields[key.Value]
			if _, part := fields[others]; part && !known {
				kept = append(kept, key, value)
				continue
			}
			if !known {
				c.addf(key, at, "%s", c.unknown(key.Value, path, fields))
				continue
			}
			t, c.unit = f.Type, f.unit
		}
		c.check(value, t, at, depth+1)
		kept = append(kept, key, value)
	}
	n.Content = kept
}

// element is the number of one in a path.
var element = regexp.MustCompile(`\[\d+\]`)

// unknown says what to do with a key that the section at path does not have.
func (c *checker) unknown(key, path string, fields map[string]field) string {
	if c.removed != nil {
		if now := c.removed(element.ReplaceAllString(join(path, key), "[]")); now != "" {
			return "is not a setting any more: " + now
		}
	}
	return "is not a known field" + suggest(key, path, fields)
}

// merge checks the value of "<<:": a mapping, or a list of them.
func (c *checker) merge(n *yaml.Node, fields map[string]field, elem reflect.Type, path string, depth int) {
	if c.nodes++; depth > maxDepth || c.nodes > maxNodes {
		return
	}
	switch {
	case n.Kind == yaml.AliasNode && n.Alias != nil:
		c.merge(n.Alias, fields, elem, path, depth+1)
	case n.Kind == yaml.SequenceNode:
		for _, e := range n.Content {
			c.merge(e, fields, elem, path, depth+1)
		}
	default:
		c.mapping(n, fields, elem, path, depth+1)
	}
}

func (c *checker) sequence(n *yaml.Node, elem reflect.Type, path string, depth int) {
	if n.Kind != yaml.SequenceNode {
		c.addf(n, path, "%s is not a list", c.show(n))
		return
	}
	for i, e := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		c.lines[at] = e.Line
		c.check(e, elem, at, depth+1)
	}
}

func (c *checker) duration(n *yaml.Node, path string) {
	if n.Kind != yaml.ScalarNode {
		c.addf(n, path, "%s is not a duration", c.show(n))
		return
	}
	if tag := n.ShortTag(); (tag == "!!int" || tag == "!!float") && strings.Trim(n.Value, "+-0.") != "" {
		c.addf(n, path, "%s has no unit; a duration is written like %q", c.show(n), "50ms")
		return
	}
	if n.Value == "0" {
		n.Value, n.Tag = "0s", "!!str" // the decoder takes no bare number
	}
	if _, err := time.ParseDuration(n.Value); err != nil {
		c.addf(n, path, "%s is not a duration like %q", c.show(n), "50ms")
	}
}

func (c *checker) scalar(n *yaml.Node, t reflect.Type, path string) {
	v := reflect.New(t)
	err := n.Decode(v.Interface())
	if err == nil {
		f, whole := 0.0, v.Elem().CanInt() || v.Elem().CanUint()
		if whole && n.Decode(&f) == nil && f != math.Trunc(f) { // the decoder cuts it off
			c.addf(n, path, "%s is not %s", c.show(n), kindName(t))
		}
		return
	}
	var typed *yaml.TypeError
	if errors.As(err, &typed) {
		if right := sized(n.Value, c.unit, t); right != "" {
			c.addf(n, path, "%s is not a whole number of %s; %s", c.show(n), c.unit, right)
			return
		}
		c.addf(n, path, "%s is not %s", c.show(n), kindName(t))
		return
	}
	c.addf(n, path, "%s: %v", c.show(n), err)
}

// show quotes a node's value as it stands in the file, shortened.
func (c *checker) show(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	text, ok := c.original[n]
	if !ok {
		text = n.Value
	}
	if r := []rune(text); len(r) > 60 {
		text = string(r[:60]) + "…"
	}
	return strconv.Quote(text)
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("a whole number of %d bits", t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number ≥ 0 of %d bits", t.Bits())
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a string"
	}
	return "a " + t.String()
}

// others stands for the sections that a struct with an inlined map has no fields for.
const others = ""

// field is a struct's field, with the unit of its number.
type field struct {
	reflect.Type
	unit string
}

// fieldsOf gives a struct's YAML names, inlined structs included, as the yaml
// package derives them.
func fieldsOf(t reflect.Type) map[string]field {
	fields := map[string]field{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, inline, skip := Name(f)
		switch {
		case skip:
		case inline:
			ft := f.Type
			if ft.Kind() == reflect.Pointer {
				ft = ft.Elem()
			}
			switch ft.Kind() {
			case reflect.Struct:
				maps.Copy(fields, fieldsOf(ft))
			case reflect.Map:
				fields[others] = field{ft, ""}
			}
		default:
			fields[name] = field{f.Type, f.Tag.Get("unit")}
		}
	}
	return fields
}

// Name returns the name of a struct's field in a file, as the yaml package derives it: none if it is inlined or
// not in the file.
func Name(f reflect.StructField) (name string, inline, skip bool) {
	tag := f.Tag.Get("yaml")
	if f.PkgPath != "" && !f.Anonymous || tag == "-" {
		return "", false, true
	}
	name, flags, _ := strings.Cut(tag, ",")
	if slices.Contains(strings.Split(flags, ","), "inline") {
		return "", true, false
	}
	if name == "" {
		name = strings.ToLower(f.Name)
	}
	return name, false, false
}

func join(path, field string) string {
	if path == "" {
		return field
	}
	return path + "." + field
}
