package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"warmroute/internal/kube"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"extproc": main})
}

// TestScripts runs the command line as people do; each script reads like a manual.
func TestScripts(t *testing.T) {
	models := must.Get(filepath.Abs(filepath.Join("..", "..", ".cache", "models")))(t)
	if _, err := os.Stat(filepath.Join(models, "qwen3", "tokenizer.json")); err != nil {
		t.Fatalf("the models' files are not there, run make setup: %v", err)
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Condition: func(name string) (bool, error) {
			if name != "kube" {
				return false, fmt.Errorf("there is no condition %q", name)
			}
			return kube.Built, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODELS", models)
			e.Setenv("GORACE", "atexit_sleep_ms=20") // the race detector would sleep for 1 s at the end of every command
			return nil
		},
	})
}
