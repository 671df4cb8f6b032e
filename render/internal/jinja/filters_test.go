package jinja

import (
	"testing"

	"warmroute/render/internal/pyvalue"
)

// Corner cases of filters, each as Python's Jinja2 3.1.6 prints it; "" where it
// raises.
func TestFilterCorners(t *testing.T) {
	for source, want := range map[string]string{
		"0.5|round(9223372036854775808)":  "0.5",
		"0.5|round(-9223372036854775809)": "0.0",
		"5|round(9223372036854775808)":    "5",
		"7|round(-400)":                   "0",
		"0.5|round(true)":                 "0.5",
		"0.5|round(1.5)":                  "",
		"' a\u3000'|trim":                 "a",
		"'a'|trim is string":              "True",
	} {
		tmpl, err := Compile("{{ "+source+" }}", Options{})
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := tmpl.Render(nil, pyvalue.NewDict(), Env{})
		if (err != nil) != (want == "") || string(got) != want {
			t.Errorf("%s: %q (%v), want %q", source, got, err, want)
		}
	}
}
