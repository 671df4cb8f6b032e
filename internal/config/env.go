package config

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// variable matches $${ (a literal ${) and ${…}; a $ before anything else is
// itself, so that patterns and templates need no escaping.
var variable = regexp.MustCompile(`\$\$\{|\$\{[^}]*\}?`)

var variableBody = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}$`)

// expand replaces the variables in a scalar. The type of a plain scalar is
// determined afterwards, so that `port: ${PORT}` is a number; a quoted one stays
// a string.
func (c *checker) expand(n *yaml.Node, path string) {
	if !strings.Contains(n.Value, "${") {
		return
	}
	if _, done := c.original[n]; done {
		return // an anchor that is used more than once
	}
	c.original[n] = n.Value
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(ref string) string {
		if ref == "$${" {
			return "${"
		}
		m := variableBody.FindStringSubmatch(ref)
		if m == nil {
			c.addf(n, path, "%q is not a variable of the form ${NAME} or ${NAME:-default}; write $${ for a literal ${", ref)
			return ""
		}
		if v, ok := c.lookup(m[1]); ok {
			return v
		}
		if m[2] == "" {
			c.addf(n, path, "the environment variable %s is not set", m[1])
		}
		return m[3]
	})
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0 {
		n.Tag = ""
	}
}
