package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"warmroute/internal/cli"
	"warmroute/render/testkit/checkout"
)

//go:generate go test . -run TestSavingsPicture -update

var update = flag.Bool("update", false, "rewrite docs/images/savings.svg")

// TestSavingsPicture: the README's picture is what its command draws.
func TestSavingsPicture(t *testing.T) {
	root := checkout.Root()
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^bin/lab replay (.*-plot savings\.svg .*)$`).FindSubmatch(readme)
	if m == nil {
		t.Fatal("the README has no command that draws the picture")
	}
	drawn := filepath.Join(t.TempDir(), "savings.svg")
	args := strings.Fields(string(m[1]))
	for i, arg := range args {
		switch {
		case arg == "savings.svg":
			args[i] = drawn
		case strings.HasPrefix(arg, "examples/"):
			args[i] = filepath.Join(root, arg)
		}
	}
	var out bytes.Buffer
	if err := replayCommand(t.Context(), args, cli.Stdio{Out: &out, Err: &bytes.Buffer{}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(drawn)
	if err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(root, "docs", "images", "savings.svg")
	if *update {
		if err := os.WriteFile(picture, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(picture); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the README's command draws (%v): run make docs", picture, err)
	}
}
