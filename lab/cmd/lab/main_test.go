package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"warmroute/render/testkit/checkout"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lab": main})
}

// TestScripts runs the command line as people do; each script reads like a manual.
func TestScripts(t *testing.T) {
	models := filepath.Join(checkout.Root(), ".cache", "models")
	if _, err := os.Stat(filepath.Join(models, "qwen3", "tokenizer.json")); err != nil {
		t.Fatalf("the models' files are not there, run make setup: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error { e.Setenv("MODELS", models); return nil },
	})
}
