package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"warmroute/internal/config"
)

// referenceFile is the content of docs/configuration.md, for `extproc schema`.
// make docs makes both from the comments of the configuration's fields.
//
//go:embed reference.json
var referenceFile []byte

// documented returns the fields of the configuration.
func documented() (fields []config.Field, err error) {
	if err := json.Unmarshal(referenceFile, &fields); err != nil {
		return nil, fmt.Errorf("the reference of the configuration: %w", err)
	}
	return fields, nil
}

// writeSchema prints the JSON Schema of the configuration.
func writeSchema(w io.Writer) error {
	fields, err := documented()
	if err != nil {
		return err
	}
	schema := config.Schema(fields)
	schema["$schema"], schema["title"] = "http://json-schema.org/draft-07/schema#", "warmroute's configuration"
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(schema)
}
