package config

import (
	"errors"
	"testing"
)

// rule is a document whose Validate returns a given error.
type rule struct {
	Says string  `yaml:"says"`
	A    section `yaml:"a"`
	B    section `yaml:"b_section"`
	List []entry `yaml:"list"`
}

type section struct {
	Name, Listen string
	TokenFile    string `yaml:"token_file"`
	TLS          struct {
		CA string `yaml:"ca_file"`
	} `yaml:"tls"`
}

type entry struct {
	Name string `yaml:"name"`
}

func (r rule) Validate() error { return errors.New(r.Says) }

// TestLinesOfProblems: a problem of a Validate method has the line of the first
// field that it names, and the lines of the others, as far as the file has them.
func TestLinesOfProblems(t *testing.T) {
	const file = `
a: &a
  name: x
  listen: y
  tls:
    ca_file: f
b_section:
  <<: *a
  name: own
  token_file: g
list:
- name: one
-
  name: two
`
	for says, want := range map[string]struct{ place, also string }{
		`a.name: is wrong`:                                    {"f:3: ", ""},
		`a.token_file: is missing`:                            {"f:2: ", ""}, // the line of its section
		`a.tls.ca_file: is given, but a.listen is empty`:      {"f:6: ", " (and line 4)"},
		`a.tls.ca_file: is given, but listen is not the name`: {"f:6: ", ""}, // English words
		`a.name and listen: one of them, not both`:            {"f:3: ", " (and line 4)"},
		`a.name, listen and tls: all of them`:                 {"f:3: ", " (and lines 4 and 5)"},
		`a.tls.ca_file is "a.name", which is wrong`:           {"f:6: ", ""}, // no colon; a value is no name
		`b_section.token_file: not beside tls.ca_file.`:       {"f:10: ", " (and line 6)"},
		`b_section.listen: from what is merged`:               {"f:4: ", ""},
		`b_section.name: not from what is merged`:             {"f:9: ", ""},
		`list[1].name: "two" is wrong`:                        {"f:14: ", ""},
		`list[1].nobody: is wrong`:                            {"f:14: ", ""},
		`list[0].name: is that of list[1].name`:               {"f:12: ", " (and line 14)"},
		`nobody: is not in the file`:                          {"f: ", ""},
		`: `:                                                  {"f: ", ""},
		``:                                                    {"f: ", ""},
	} {
		_, err := Parse("f", []byte(file), rule{Says: says}, env())
		if err == nil || err.Error() != want.place+says+want.also {
			t.Errorf("%q: %v, want %q", says, err, want)
		}
	}
}

// TestLinesOfWhatIsNotYAML: of a file that cannot be read, the line of the first
// error.
func TestLinesOfWhatIsNotYAML(t *testing.T) {
	for text, want := range map[string]string{
		"a: [\n":                              "f:1: is not YAML: did not find expected node content",
		"a: 1\nb: c: d\ne: f\n":               "f:2: is not YAML: mapping values are not allowed in this context",
		"a: 1\nb: 'x'y\nc: 1\n":               "f:2: is not YAML: did not find expected key",
		"a: 1\nb: *x\nc: 1\n":                 "f:2: is not YAML: unknown anchor 'x' referenced",
		"a: 1\nb: \x01\nc: 1\n":               "f:2: is not YAML: control characters are not allowed",
		"a: 1\n\tb: 2\nc: 1\n":                "f:2: is not YAML: found a tab character that violates indentation",
		"a: 1\nb: [1, 2\nc: 3\n":              "f:2: is not YAML: did not find expected ',' or ']'", // the line of the opening bracket
		"a: 1\nb: \"x\nc: 1\n":                "f:2: is not YAML: found unexpected end of stream",   // as above
		"a:\n  b: 1\n  c: 1\n d: 2":           "f:4: is not YAML: did not find expected key",
		"a:\n  b:\n  - c: 1\n   d: 2\ne: 1\n": "f:4: is not YAML: did not find expected key",
		"a: 1\n---\nb: 1\nc: 1\n":             "f:2: a second YAML document begins; the file must hold one",
		"a: 1\n---\nb: 1\nc: ]\n":             "f:4: is not YAML: did not find expected node content",
		"- a\n":                               "f:1: a list is not a mapping of fields",
	} {
		if _, err := Parse("f", []byte(text), defaults(), env()); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
