package chat

import (
	"math/big"
	"regexp"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// maxSchemaDepth bounds the depth of a schema; Python's checker fails at some greater
// depth.
const maxSchemaDepth = 32

// errSchema is the error of an invalid JSON schema.
var errSchema = objection("the tool's parameters are not a valid JSON schema")

// place is a place in a schema, with the budget that pays for the check.
type place struct {
	depth int
	work  *work.Budget
}

func (p place) deeper() place { return place{p.depth + 1, p.work} }

// patternSteps are the steps of compiling a byte of a regular expression, which may become
// a thousand instructions.
const patternSteps = 256

// schemaKind returns the check of a draft-7 keyword's value; nil: any value is good.
func schemaKind(keyword string) func(v any, at place) error {
	switch keyword {
	case "$id", "$schema", "$ref", "$comment", "title", "description", "format", "contentMediaType", "contentEncoding":
		return isText
	case "readOnly", "uniqueItems":
		return isBool
	case "examples", "enum":
		return isList
	case "multipleOf":
		return isPositive
	case "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum":
		return isNumber
	case "maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties":
		return isCount
	case "pattern":
		return isPattern
	case "required":
		return isNames
	case "type":
		return isTypes
	case "additionalItems", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not":
		return isSchema
	case "items":
		return orList(isSchemas)
	case "allOf", "anyOf", "oneOf":
		return isSchemas
	case "definitions", "properties":
		return isSchemaMap
	case "patternProperties":
		return isPatternMap
	case "dependencies":
		return func(v any, at place) error {
			return eachValue(v, func(v any) error { return orList(isNames)(v, at) })
		}
	}
	return nil
}

// orList returns a check that checks a list by list, and other values as a schema.
func orList(list func(any, place) error) func(any, place) error {
	return func(v any, at place) error {
		if _, ok := v.(*pyvalue.List); ok {
			return list(v, at)
		}
		return isSchema(v, at)
	}
}

func isPatternMap(v any, at place) error {
	if err := isSchemaMap(v, at); err != nil {
		return err
	}
	for k := range v.(*pyvalue.Dict).All() {
		if err := isPattern(k, at); err != nil {
			return err
		}
	}
	return nil
}

// checkSchema returns errSchema if jsonschema's check against draft 7 fails. It refuses
// schemas that this package cannot check: with regular expressions that Python may read
// otherwise, or of great depth.
func checkSchema(b *work.Budget, v any) error { return isSchema(v, place{work: b}) }

func isSchema(v any, at place) error {
	if at.depth > maxSchemaDepth {
		return refuse(UnknownShape)
	}
	if _, ok := v.(bool); ok {
		return nil
	}
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return errSchema
	}
	var unsure error
	for k, v := range d.All() {
		at.work.Step(2 * fieldSteps)
		name, _ := k.(string)
		check := schemaKind(name)
		if check == nil {
			continue
		}
		switch err := check(v, at.deeper()); {
		case err == errSchema: //nolint:errorlint // the value itself
			return err
		case err != nil:
			unsure = err
		}
	}
	return unsure
}

func valid(ok bool) error {
	if ok {
		return nil
	}
	return errSchema
}

func isText(v any, _ place) error { _, ok := v.(string); return valid(ok) }
func isBool(v any, _ place) error { _, ok := v.(bool); return valid(ok) }
func isList(v any, _ place) error { _, ok := v.(*pyvalue.List); return valid(ok) }

func isNumber(v any, _ place) error {
	switch v.(type) {
	case int64, float64, *big.Int:
		return nil
	}
	return errSchema
}

// sign returns the sign of a number, and 2 for other values.
func sign(v any) int {
	switch v := v.(type) {
	case int64:
		return big.NewInt(v).Sign()
	case *big.Int:
		return v.Sign()
	case float64:
		switch {
		case v > 0:
			return 1
		case v < 0:
			return -1
		case v == 0:
			return 0
		}
		return 1 // NaN: Python's comparisons with it are all false
	}
	return 2
}

func isPositive(v any, _ place) error { return valid(sign(v) == 1) }

func isCount(v any, _ place) error {
	if f, ok := v.(float64); ok && f != float64(int64(f)) {
		return errSchema
	}
	n := sign(v)
	return valid(n == 0 || n == 1)
}

// isNames checks for a list of distinct texts.
func isNames(v any, at place) error {
	list, ok := v.(*pyvalue.List)
	if !ok {
		return errSchema
	}
	seen := map[string]bool{}
	for _, item := range list.Items {
		at.work.Step(fieldSteps)
		at.work.Memory(fieldBytes)
		text, ok := item.(string)
		if !ok || seen[text] {
			return errSchema
		}
		seen[text] = true
	}
	return nil
}

func isTypes(v any, at place) error {
	simple := func(v any) bool {
		switch v {
		case "array", "boolean", "integer", "null", "number", "object", "string":
			return true
		}
		return false
	}
	list, ok := v.(*pyvalue.List)
	if !ok {
		text, isText := v.(string)
		return valid(isText && simple(text))
	}
	for _, item := range list.Items {
		if text, ok := item.(string); !ok || !simple(text) {
			return errSchema
		}
	}
	if len(list.Items) == 0 {
		return errSchema
	}
	return isNames(v, at)
}

func isSchemas(v any, at place) error {
	list, ok := v.(*pyvalue.List)
	if !ok || len(list.Items) == 0 {
		return errSchema
	}
	var unsure error
	for _, item := range list.Items {
		at.work.Step(1)
		switch err := isSchema(item, at); {
		case err == errSchema: //nolint:errorlint // the value itself
			return err
		case err != nil:
			unsure = err
		}
	}
	return unsure
}

func isSchemaMap(v any, at place) error {
	return eachValue(v, func(v any) error { return isSchema(v, at) })
}

func eachValue(v any, check func(any) error) error {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return errSchema
	}
	var unsure error
	for _, v := range d.All() {
		switch err := check(v); {
		case err == errSchema: //nolint:errorlint // the value itself
			return err
		case err != nil:
			unsure = err
		}
	}
	return unsure
}

// isPattern takes regular expressions that Go and Python read alike, and refuses others: it
// cannot tell which of them Python's re accepts.
func isPattern(v any, at place) error {
	text, ok := v.(string)
	if !ok {
		return errSchema
	}
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
			if i == len(text) || !strings.ContainsRune(`dwsDWSbBnrtfv.*+?()[]{}|^$/\-_:@#"'%&=~!<>,;`, rune(text[i])) {
				return refuse(UnknownShape)
			}
		case text[i] == '(' && strings.HasPrefix(text[i:], "(?") && !strings.HasPrefix(text[i:], "(?:"),
			text[i] == '[' && (strings.HasPrefix(text[i:], "[[") || strings.HasPrefix(text[i:], "[^[")):
			return refuse(UnknownShape)
		}
	}
	at.work.Step(patternSteps * (16 + len(text)))
	at.work.Memory(patternSteps * (16 + len(text)))
	if _, err := regexp.Compile(text); err != nil {
		return refuse(UnknownShape)
	}
	return nil
}
