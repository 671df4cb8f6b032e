package chart

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"warmroute/render/testkit/must"
)

//go:generate go test . -run TestReadme -update

var update = flag.Bool("update", false, "rewrite the generated part of the chart's README.md")

// value is one value of values.yaml, or a section of values.
type value struct {
	path, preset, meaning string
	section               bool
}

// valuesOf returns the values of a mapping and of the sections below it, as
// values.yaml explains them. What is written in one line is one value.
func valuesOf(t *testing.T, n *yaml.Node, path string) (out []value) {
	t.Helper()
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, is := n.Content[i], n.Content[i+1]
		v := value{path: path + key.Value}
		for comment := range strings.Lines(key.HeadComment + "\n" + key.LineComment + "\n" + is.LineComment) {
			v.meaning = strings.TrimSpace(v.meaning + " " + strings.TrimSpace(strings.TrimPrefix(comment, "#")))
		}
		switch v.section = is.Kind == yaml.MappingNode && is.Style&yaml.FlowStyle == 0; {
		case v.section:
			out = append(append(out, v), valuesOf(t, is, v.path+".")...)
			continue
		case is.Kind == yaml.SequenceNode && is.Style&yaml.FlowStyle == 0:
			v.preset = "see values.yaml"
		default:
			is.LineComment = ""
			text := must.Get(yaml.Marshal(is))(t)
			v.preset = "`" + strings.TrimSpace(string(text)) + "`"
		}
		if !strings.HasSuffix(v.meaning, ".") {
			t.Errorf("values.yaml: %s has no sentence: %q", v.path, v.meaning)
		}
		out = append(out, v)
	}
	return out
}

func readValues(t *testing.T) []value {
	t.Helper()
	text := must.Get(os.ReadFile(dir + "/values.yaml"))(t)
	text = text[strings.Index(string(text), "\n\n"):] // without the file's own comment
	var document yaml.Node
	must.Do(t, yaml.Unmarshal(text, &document))
	return valuesOf(t, document.Content[0], "")
}

// TestReadme: the tables of the chart's README.md are what values.yaml says.
func TestReadme(t *testing.T) {
	const (
		file   = dir + "/README.md"
		header = "## Values\n"
		table  = "\n| Value | Default | Meaning |\n|---|---|---|\n"
	)
	old := must.Get(os.ReadFile(file))(t)
	byHand, _, _ := strings.Cut(string(old), header)
	var b strings.Builder
	b.WriteString(byHand + header + "\n`make docs` takes this from the comments of [values.yaml](values.yaml). The Secret of a token is given as NAME, for its key `token`, or as NAME/KEY.\n" + table)
	all := readValues(t)
	for _, v := range all {
		if !v.section && !strings.Contains(v.path, ".") {
			v.row(&b)
		}
	}
	for _, v := range all {
		switch {
		case v.section:
			fmt.Fprintf(&b, "\n### `%s`\n", v.path)
			if v.meaning != "" {
				fmt.Fprintf(&b, "\n%s\n", v.meaning)
			}
			b.WriteString(table)
		case strings.Contains(v.path, "."):
			v.row(&b)
		}
	}
	if b.String() == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is not up to date; make docs writes it", file)
	}
	must.Do(t, os.WriteFile(file, []byte(b.String()), 0o644))
}

func (v value) row(b *strings.Builder) {
	fmt.Fprintf(b, "| `%s` | %s | %s |\n", v.path, v.preset, strings.ReplaceAll(v.meaning, "|", `\|`))
}

// TestSchemaHasEveryValue: values.yaml and its schema have the same values.
func TestSchemaHasEveryValue(t *testing.T) {
	text := must.Get(os.ReadFile(dir + "/values.schema.json"))(t)
	type schema struct{ Properties map[string]json.RawMessage }
	var root schema
	must.Do(t, json.Unmarshal(text, &root))
	delete(root.Properties, "global") // Helm's own
	var has []string
	for _, name := range slices.Sorted(maps.Keys(root.Properties)) {
		var section schema
		must.Do(t, json.Unmarshal(root.Properties[name], &section))
		for below := range section.Properties {
			has = append(has, name+"."+below)
		}
		if section.Properties == nil {
			has = append(has, name)
		}
	}
	var want []string
	for _, v := range readValues(t) {
		if !v.section {
			want = append(want, v.path)
		}
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		t.Errorf("the schema has\n%v, values.yaml\n%v", has, want)
	}
}
