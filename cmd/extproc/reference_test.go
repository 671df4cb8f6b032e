package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/internal/config/configtest"
	"warmroute/internal/decision/policy"
	"warmroute/render/testkit/must"
)

const referenceIntro = `# Configuration

One YAML file configures the router. Each field is followed by its type, unless it is a string, its unit and its default. A field without a default is empty: 0, false, or none. [The operations guide](operations.md#when-a-setting-takes-effect) says when a change takes effect. Editors complete and check a file that begins with ` + "`# yaml-language-server: $schema=warmroute.schema.json`" + `, from ` + "`extproc schema > warmroute.schema.json`" + `.

Durations have a unit (` + "`50ms`, `2m`" + `). In strings, ` + "`${NAME}` and `${NAME:-default}`" + ` are replaced by environment variables; ` + "`$${`" + ` is a literal ` + "`${`" + `. In names, ` + "`[]`" + ` is any element of a list, and ` + "`*`" + ` any key.
`

// reference is the reference of every field of the configuration.
func reference(t *testing.T) []configtest.Field {
	t.Helper()
	fields, _ := referenceAndNames(t)
	return fields
}

// referenceAndNames also returns the fields' names in Go, of those with words inside.
func referenceAndNames(t *testing.T) (fields []configtest.Field, names map[string]bool) {
	t.Helper()
	names = map[string]bool{}
	defaults := defaultConfig()
	s := policy.DefaultSettings()
	defaults.Policy.Overrides = policy.Overrides{
		RoutePolicy: &s.Policy, HintWhenCold: &s.HintCold, MaxTTFT: &s.MaxTTFT,
		MinPrefixMatch: &s.Balance.MinMatch, BalanceAbs: &s.Balance.Abs, BalanceRel: &s.Balance.Rel,
	}
	comment := configtest.Comments("../..", "warmroute", "warmroute/cmd/extproc")
	fields = configtest.Reference(defaults, func(owner reflect.Type, field string) string {
		if words.MatchString(field) && field != "LoRA" { // a word for people, too
			names[field] = true
		}
		text, err := comment(owner, field)
		if err != nil {
			t.Error(err)
		}
		return text
	})
	return fields, names
}

var (
	words      = regexp.MustCompile(`[a-z][A-Z]`)                 // inside a name of several words in Go
	selector   = regexp.MustCompile(`\b[A-Z][A-Za-z]*\.[A-Za-z]`) // Type.Field, or an attribute that has become a sentence's beginning
	identifier = regexp.MustCompile(`\w+`)
)

// goName returns the first name in a text that a file does not know: a field's as Go writes
// it, of names or with a selector.
func goName(text string, names map[string]bool) string {
	if found := selector.FindString(text); found != "" {
		return found
	}
	for _, word := range identifier.FindAllString(text, -1) {
		if names[word] {
			return word
		}
	}
	return ""
}

// TestConfigurationIsDocumented: every field has a sentence, every number a
// unit, and docs/configuration.md and the schema are up to date.
func TestConfigurationIsDocumented(t *testing.T) {
	fields, names := referenceAndNames(t)
	for _, text := range []string{"Service.name of the spans.", "ReadyNeedsReplica makes it fail.", "Overrides `policy.RoutePolicy`, or Policy.RoutePolicy."} {
		if goName(text, names) == "" {
			t.Errorf("no name of Go is found in %q", text)
		}
	}
	for _, f := range fields {
		if name := goName(f.Meaning, names); name != "" {
			t.Errorf("%s: %q is no name of the file: %s", f.Path, name, f.Meaning)
		}
		if f.Applies == "" && f.Type != "section" {
			t.Errorf("%s has no tag that says when a change takes effect, nor has a section around it", f.Path)
		}
		if (f.Type == "integer" || f.Type == "number") && f.Unit == "" {
			t.Errorf("%s is a number without a unit", f.Path)
		}
		if len(strings.Fields(f.Meaning)) < 3 {
			t.Errorf("%s: %q is no sentence", f.Path, f.Meaning)
		}
	}
	var page bytes.Buffer
	must.Do(t, writeReference(&page, referenceIntro, fields))
	schema := configtest.Schema(fields)
	schema["$schema"], schema["title"] = "http://json-schema.org/draft-07/schema#", "warmroute's configuration"
	for file, want := range map[string][]byte{
		"../../docs/configuration.md": page.Bytes(), "testdata/reference.json": indented(t, "", fields),
		"schema.json": indented(t, "", schema), chartSchema: valuesSchema(t, fields),
	} {
		if *update && !t.Failed() {
			must.Do(t, os.WriteFile(file, want, 0o644))
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date (%v); make docs writes it", file, err)
		}
	}
}

// indented returns a value as JSON, for a file.
func indented(t *testing.T, before string, v any) []byte {
	t.Helper()
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent(before, " ")
	must.Do(t, e.Encode(v))
	return out.Bytes()
}

// chartSchema is the schema of the chart's values. What it says of values.config is
// generated, the rest is written by hand.
const chartSchema = "../../charts/warmroute/values.schema.json"

// valuesSchema returns the schema of the chart's values with that of these fields.
func valuesSchema(t *testing.T, fields []configtest.Field) []byte {
	t.Helper()
	const router = `    "router": `
	old := must.Get(os.ReadFile(chartSchema))(t)
	byHand, _, found := bytes.Cut(old, []byte(router))
	if !found {
		t.Fatalf("%s has no schema of the router's configuration", chartSchema)
	}
	return slices.Concat(byHand, []byte(router), indented(t, "    ", configtest.Schema(fields)), []byte("  }\n}\n"))
}

// TestSchemaCommand: what extproc schema prints takes every field of the reference and every
// example, each of which names it for editors, and refuses a field that does not exist.
func TestSchemaCommand(t *testing.T) {
	var out, errs bytes.Buffer
	must.Do(t, program().Run(t.Context(), []string{"schema"}, stdio{Out: &out, Err: &errs}))
	var schema map[string]any
	if err := json.Unmarshal(out.Bytes(), &schema); err != nil || schema["$schema"] == nil {
		t.Fatalf("%v: %.200s", err, out.Bytes())
	}
	for _, f := range reference(t) {
		if !described(schema, strings.Split(strings.ReplaceAll(f.Path, "[]", ".[]"), ".")) {
			t.Errorf("%s is not in the schema", f.Path)
		}
	}
	files, err := filepath.Glob("../../examples/*/warmroute.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		if !bytes.HasPrefix(raw, []byte("# yaml-language-server: $schema=warmroute.schema.json\n")) {
			t.Errorf("%s names no schema for editors", file)
		}
		var example any
		must.Do(t, yaml.Unmarshal(raw, &example))
		if at := unknown(schema, example, ""); at != "" {
			t.Errorf("%s: the schema has no %s", file, at)
		}
	}
	if at := unknown(schema, map[string]any{"fleet": map[string]any{"replicsa": 1}}, ""); at != ".fleet.replicsa" {
		t.Errorf("the schema takes a field that does not exist: %q", at)
	}
}

// described reports whether a schema has a path, whose parts are names, [] and *.
func described(schema map[string]any, path []string) bool {
	if len(path) == 0 {
		return schema["description"] != "" && schema["description"] != nil
	}
	properties, _ := schema["properties"].(map[string]any)
	next := properties[path[0]]
	switch path[0] {
	case "[]":
		next = schema["items"]
	case "*":
		next = schema["additionalProperties"]
	}
	below, ok := next.(map[string]any)
	return ok && (described(below, path[1:]) || len(path) == 1 && (path[0] == "[]" || path[0] == "*"))
}

// unknown returns the path of the first field of a value that its schema refuses.
func unknown(schema map[string]any, value any, at string) string {
	switch value := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, v := range value {
			below, ok := properties[name].(map[string]any)
			if !ok {
				if below, ok = schema["additionalProperties"].(map[string]any); !ok {
					return at + "." + name
				}
			}
			if found := unknown(below, v, at+"."+name); found != "" {
				return found
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, v := range value {
			if found := unknown(items, v, at+"[]"); found != "" {
				return found
			}
		}
	}
	return ""
}
