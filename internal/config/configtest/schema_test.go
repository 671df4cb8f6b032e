package configtest

import (
	"encoding/json"
	"testing"

	"warmroute/render/testkit/must"
)

// TestSchema: sections, lists and mappings of them, and a mapping whose keys are fixed,
// allow the fields of the reference and no others.
func TestSchema(t *testing.T) {
	field := func(path, kind string) Field { return Field{Path: path, Type: kind, Meaning: path} }
	got := must.Get(json.MarshalIndent(Schema([]Field{
		field("on", "boolean"),
		field("list", "list of sections"), field("list[].name", "string"), field("list[].words", "list of strings"),
		field("by_name", "mapping of sections"), field("by_name.*.wait", "duration"),
		field("fixed", "mapping of numbers"), field("fixed.beta", "number"),
		field("free", "mapping of integers"),
	}), "", " "))(t)
	want := `{
 "additionalProperties": false,
 "properties": {
  "by_name": {
   "additionalProperties": {
    "additionalProperties": false,
    "properties": {
     "wait": {
      "description": "by_name.*.wait",
      "maximum": 0,
      "minimum": 0,
      "pattern": "^[+-]?([0-9]*\\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))+$|^0$|\\$\\{",
      "type": [
       "string",
       "integer"
      ]
     }
    },
    "type": "object"
   },
   "description": "by_name",
   "type": "object"
  },
  "fixed": {
   "additionalProperties": false,
   "description": "fixed",
   "properties": {
    "beta": {
     "description": "fixed.beta",
     "pattern": "\\$\\{",
     "type": [
      "number",
      "string"
     ]
    }
   },
   "type": "object"
  },
  "free": {
   "additionalProperties": {
    "pattern": "\\$\\{",
    "type": [
     "integer",
     "string"
    ]
   },
   "description": "free",
   "type": "object"
  },
  "list": {
   "description": "list",
   "items": {
    "additionalProperties": false,
    "properties": {
     "name": {
      "description": "list[].name",
      "type": [
       "string",
       "number"
      ]
     },
     "words": {
      "description": "list[].words",
      "items": {
       "type": [
        "string",
        "number"
       ]
      },
      "type": "array"
     }
    },
    "type": "object"
   },
   "type": "array"
  },
  "on": {
   "description": "on",
   "pattern": "\\$\\{",
   "type": [
    "boolean",
    "string"
   ]
  }
 },
 "type": "object"
}`
	if string(got) != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
