package jinja

// The tables of what templates can name. They are constant; they are filled in
// init because their functions look names up in them, a cycle Go does not
// allow in initialisers.
var (
	filters     map[string]filterFn // Jinja 3.1's, with transformers' tojson
	tests       map[string]filterFn // Jinja 3.1's
	textMethods map[string]textFn   // of str
)

func init() {
	filters, tests, textMethods = makeFilters(), makeTests(), makeTextMethods()
}
