package config

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Print writes v, e.g. the effective configuration, as YAML that Parse reads
// back to the same value.
func Print(v any) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(v); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	escape(&root)
	var buf bytes.Buffer
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return buf.Bytes(), nil
}

// escape protects a value that holds "${" from expand.
func escape(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode {
		n.Value = strings.ReplaceAll(n.Value, "${", "$${")
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue // keys are not expanded
		}
		escape(c)
	}
}
