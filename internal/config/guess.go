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

// suggest says which known fields key may mean: the one that differs least, if it is
// near, or else those of the sections in it that have the name, or those of which key is a
// part. If there are none, it lists the fields of the section at path, unless there are many.
func suggest(key, path string, fields map[string]field) string {
	best, least := "", farthest(key)+1
	var partly []string
	known := slices.Sorted(maps.Keys(fields))
	for _, name := range known {
		if d := distance(key, name); d < least {
			best, least = name, d
		}
		if len(key) > 2 && strings.Contains(name, key) {
			partly = append(partly, name)
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("; did you mean %q?", best)
	case len(deeper(key, path, fields, 0)) > 0:
		return meant(deeper(key, path, fields, 0))
	case len(partly) > 0:
		return meant(partly)
	case len(known) > mostListed:
		return ""
	case path == "":
		return "; the fields are " + strings.Join(known, ", ")
	}
	return "; the fields of " + path + " are " + strings.Join(known, ", ")
}

// deepest bounds the sections within sections in which deeper looks.
const deepest = 4

// deeper returns the paths of the fields called key in the sections among fields.
func deeper(key, path string, fields map[string]field, depth int) (paths []string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if depth > 0 && name == key {
			paths = append(paths, join(path, name))
		}
		t := fields[name].Type
		if k, ok := reflect.Zero(t).Interface().(Keys); ok {
			t = reflect.TypeOf(k.Keys())
		}
		if t.Kind() == reflect.Struct && depth < deepest {
			paths = append(paths, deeper(key, join(path, name), fieldsOf(t), depth+1)...)
		}
	}
	return paths
}

// meant asks for the first ones of some fields.
func meant(names []string) string {
	quoted := make([]string, 0, 3)
	for _, name := range names[:min(3, len(names))] {
		quoted = append(quoted, strconv.Quote(name))
	}
	return fmt.Sprintf("; did you mean %s?", either(quoted))
}

// either joins words with commas and a final "or".
func either(words []string) string {
	n := len(words) - 1
	if n == 0 {
		return words[0]
	}
	return strings.Join(words[:n], ", ") + " or " + words[n]
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
