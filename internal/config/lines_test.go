package config

import (
	"errors"
	"testing"
)

// rule is a document whose Validate says what it is told to.
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

// TestLinesOfProblems: a problem that a Validate method finds has the lines of the
// fields it is about, as far as the file has them.
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
	for says, want := range map[string]string{
		`a.name: is wrong`:                                    " (line 3)",
		`a.token_file: is missing`:                            " (line 2)", // where it would stand
		`a.tls.ca_file: is given, but a.listen is empty`:      " (lines 4 and 6)",
		`a.tls.ca_file: is given, but listen is not the name`: " (line 6)", // English words
		`a.name and listen: one of them, not both`:            " (lines 3 and 4)",
		`a.name, listen and tls: all of them`:                 " (lines 3, 4 and 5)",
		`a.tls.ca_file is "a.name", which is wrong`:           " (line 6)", // no colon; a value is no name
		`b_section.token_file: not beside tls.ca_file.`:       " (lines 6 and 10)",
		`b_section.listen: from what is merged`:               " (line 4)",
		`b_section.name: not from what is merged`:             " (line 9)",
		`list[1].name: "two" is wrong`:                        " (line 14)",
		`list[1].nobody: is wrong`:                            " (line 14)",
		`list[0].name: is that of list[1].name`:               " (lines 12 and 14)",
		`nobody: is not in the file`:                          "",
		`: `:                                                  "",
		``:                                                    "",
	} {
		_, err := Parse([]byte(file), rule{Says: says}, env())
		if err == nil || err.Error() != says+want {
			t.Errorf("%q: %v, want %q", says, err, want)
		}
	}
}
