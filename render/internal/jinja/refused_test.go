package jinja

import (
	"errors"
	"testing"

	"warmroute/render/internal/pyvalue"
)

// TestRefusedFeatures: features that no published chat template uses are refused by name
// where they are executed; tags, self and a parameter caller when the template is compiled.
func TestRefusedFeatures(t *testing.T) {
	for source, want := range map[string]string{
		"{% filter upper %}a{% endfilter %}":                    "tag filter",
		"{% block a %}{% endblock %}":                           "tag block",
		"{% autoescape false %}{% endautoescape %}":             "tag autoescape",
		"{% extends 'a' %}":                                     "tag extends",
		"{% include 'a' %}":                                     "tag include",
		"{% import 'a' as b %}":                                 "tag import",
		"{% from 'a' import b %}":                               "tag from",
		"{{ self }}":                                            "self",
		"{% macro m(caller) %}{{ caller() }}{% endmacro %}":     "caller",
		"{{ 'a'|pprint }}":                                      "filter pprint",
		"{{ 'a'|urlize }}":                                      "filter urlize",
		"{{ 'a'|wordwrap }}":                                    "filter wordwrap",
		"{{ {}|xmlattr }}":                                      "filter xmlattr",
		"{{ 'a'|striptags }}":                                   "filter striptags",
		"{{ 'a'|urlencode }}":                                   "filter urlencode",
		"{{ 1|filesizeformat }}":                                "filter filesizeformat",
		"{{ []|groupby('a') }}":                                 "filter groupby",
		"{{ []|batch(2) }}":                                     "filter batch",
		"{{ []|slice(2) }}":                                     "filter slice",
		"{{ []|random }}":                                       "filter random",
		"{{ ['a']|map('urlize')|list }}":                        "filter urlize",
		"{{ cycler(1) }}":                                       "cycler",
		"{{ joiner() }}":                                        "joiner",
		"{{ lipsum() }}":                                        "lipsum",
		"{{ 'a'.translate({}) }}":                               "str.translate",
		"{{ ''.maketrans({}) }}":                                "str.maketrans",
		"{{ ('a'|safe).striptags() }}":                          "Markup.striptags",
		"{% if false %}{{ 'a'|urlize }}{% endif %}":             "",
		"{% macro m(self) %}{{ self }}{% endmacro %}{{ m(1) }}": "",
	} {
		tmpl, err := Compile(source, Options{})
		if err == nil {
			_, err = tmpl.Render(nil, pyvalue.NewDict(), Env{})
		}
		if Refused(err) != want || errors.Is(err, ErrUnsupported) != (want != "") || want == "" && err != nil {
			t.Errorf("%s: %v, refused for %q, want %q", source, err, Refused(err), want)
		}
	}
}
