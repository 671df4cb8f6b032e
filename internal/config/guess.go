package config

import (
	"fmt"
	"maps"
	"math/bits"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// farthest returns the largest distance of a typing error in key: more edits make another
// word.
func farthest(key string) int { return max(1, min(2, len(key)/3)) }

// mostListed bounds the fields that a sentence lists.
const mostListed = 20

// suggest names the known field that key may mean: one that differs from it by a typing error, or
// that a section below this one has by that name. If there is none, it lists the fields of the section
// at path, unless there are many.
func suggest(key, path string, fields map[string]field) string {
	known := slices.Sorted(maps.Keys(fields))
	best, least := "", farthest(key)+1
	for _, name := range known {
		if d := distance(key, name); d < least {
			best, least = name, d
		}
	}
	for _, name := range known {
		if best == "" && has(fields[name].Type, key) {
			best = join(join(path, name), key)
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(known) > mostListed:
		return ""
	case path == "":
		return "; the fields are " + strings.Join(known, ", ")
	}
	return "; the fields of " + path + " are " + strings.Join(known, ", ")
}

// has reports whether a section of type t has the field key.
func has(t reflect.Type, key string) bool {
	below, step, _ := Nested(reflect.Zero(t))
	if !below.IsValid() || step != "" { // the fields of a list or a mapping are not the section's
		return false
	}
	_, known := fieldsOf(below.Type())[key]
	return known
}

// Keys is implemented by maps whose keys are fixed: the struct has them as fields.
type Keys interface{ Keys() any }

// Nested returns the struct whose fields are below v, and its part of a path.
// value is false if v has only those fields.
func Nested(v reflect.Value) (below reflect.Value, step string, value bool) {
	if k, is := v.Interface().(Keys); is {
		return reflect.ValueOf(k.Keys()), "", true
	}
	t := v.Type()
	switch t.Kind() {
	case reflect.Struct:
		return v, "", false
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return reflect.Zero(t.Elem()), "[]", true
		}
	case reflect.Map:
		if t.Elem().Kind() == reflect.Struct {
			return reflect.Zero(t.Elem()), ".*", true
		}
	}
	return reflect.Value{}, "", true
}

// size matches a number of bytes with a suffix, as other programs write it.
var size = regexp.MustCompile(`^([0-9]{1,9}) ?([kKMGT])i?[bB]?$`)

// sized says how text, a size with a suffix, is written as a whole number of bytes or
// MiB; "" if it is none, or does not fit. It takes the suffix for a power of 1,024.
func sized(text, unit string, t reflect.Type) string {
	m := size.FindStringSubmatch(text)
	shift, counts := map[string]int{"bytes": 0, "MiB": 20}[unit]
	if m == nil || !counts {
		return ""
	}
	n, _ := strconv.ParseUint(m[1], 10, 64) // at most nine digits
	suffix := strings.ToUpper(m[2])
	power := 10 * (1 + strings.Index("KMGT", suffix))
	if bits.Len64(n)+power >= t.Bits() || power < shift {
		return ""
	}
	return fmt.Sprintf("write %d for %d %siB", n<<power>>shift, n, suffix)
}

// distance returns the Levenshtein distance, over bytes; keys are ASCII words. Words
// too long to be a typing error of a field name count as far.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
