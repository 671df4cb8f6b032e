package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"warmroute/internal/config"
)

// referenceFile is the content of docs/configuration.md, for `extproc check -explain`.
// make docs makes both from the comments of the configuration's fields.
//
//go:embed reference.json
var referenceFile []byte

// explainField prints the purpose of a field or a section of the configuration.
func explainField(w io.Writer, name string) error {
	var fields []config.Field
	if err := json.Unmarshal(referenceFile, &fields); err != nil {
		return fmt.Errorf("the reference of the configuration: %w", err)
	}
	return config.Explain(w, fields, name)
}
