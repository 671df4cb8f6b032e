package jinja

// These tables map the names that templates can use. They are constant. init fills
// them, because their functions look names up in them, a cycle that Go does not allow
// in initialisers.
var (
	filters     map[string]filterFn // Jinja 3.1's, with transformers' tojson
	tests       map[string]filterFn // Jinja 3.1's
	textMethods map[string]textFn   // of str
)

func init() {
	filters, tests, textMethods = makeFilters(), makeTests(), makeTextMethods()
}
