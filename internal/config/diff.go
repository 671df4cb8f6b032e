package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Differences returns the fields in which two configurations differ, by their
// paths, sorted. A list is one field.
func Differences[T any](a, b T) ([]string, error) {
	x, err := tree(a)
	if err != nil {
		return nil, err
	}
	y, err := tree(b)
	if err != nil {
		return nil, err
	}
	return differ(nil, "", x, y), nil
}

func tree(v any) (map[string]any, error) {
	text, err := yaml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	var out map[string]any
	if err := yaml.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return out, nil
}

func differ(out []string, path string, a, b map[string]any) []string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		at := join(path, name)
		x, xok := a[name].(map[string]any)
		y, yok := b[name].(map[string]any)
		switch {
		case xok && yok:
			out = differ(out, at, x, y)
		case !reflect.DeepEqual(a[name], b[name]):
			out = append(out, at)
		}
	}
	return out
}
