package stage

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// withoutExtProc removes the ext_proc filter from a bootstrap and leaves all else: then
// no request has a hint, and the same cluster falls back to least_request.
func withoutExtProc(bootstrap []byte) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(bootstrap, &root); err != nil {
		return nil, fmt.Errorf("read the bootstrap: %w", err)
	}
	if n := dropFilter(&root); n != 1 {
		return nil, fmt.Errorf("the bootstrap has %d ext_proc filters, expected 1", n)
	}
	return yaml.Marshal(&root)
}

// dropFilter removes the ext_proc filters below n and returns their number.
func dropFilter(n *yaml.Node) (dropped int) {
	if n.Kind == yaml.SequenceNode {
		n.Content = slices.DeleteFunc(n.Content, func(item *yaml.Node) bool {
			if item.Kind != yaml.MappingNode {
				return false
			}
			for i := 0; i+1 < len(item.Content); i += 2 {
				if item.Content[i].Value == "name" && item.Content[i+1].Value == "envoy.filters.http.ext_proc" {
					dropped++
					return true
				}
			}
			return false
		})
	}
	for _, c := range n.Content {
		dropped += dropFilter(c)
	}
	return dropped
}
