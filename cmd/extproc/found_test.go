package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warmroute/internal/testenv"
)

// TestATokenizerThatCannotBeFetchedIsANote: /readyz names the model and the cause.
func TestATokenizerThatCannotBeFetchedIsANote(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	sim := testenv.StartSimulator(t, "-model", "m", "-root", "own/model", "-replay", "")
	r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: \"\"}\nfleet: {replicas: [{address: %q}]}\n", sim.Addr))
	until(t, "a note", func() bool {
		code, page := get(t, "http://"+r.reloads.inForce().Admin.Listen+"/readyz")
		return code == http.StatusOK && strings.Contains(page, `note: tokens of model "m": replicas compute them, because its tokenizer "own/model" cannot be found, fetched or loaded: fetch own/model: `) &&
			strings.Contains(page, "connection refused")
	})
}
