package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/internal/tokens"
)

// TestFoundWithoutBeingTold: with addresses alone the router finds the tokenizer by
// the folder from which a replica reports to have loaded its model, and computes
// the ids of the model, its alias and its adapter in process; /debug and explain
// report the found files.
func TestFoundWithoutBeingTold(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_HUB_OFFLINE", "1")
	folder := t.TempDir()
	sim := testenv.StartSimulator(t, "-model", "m", "-root", folder, "-write-model", folder, "-alias", "also", "-lora", "sql=/adapters/sql", "-replay", "")
	r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: \"\"}\nfleet: {replicas: [{address: %q}]}\n", sim.Addr))
	admin := r.reloads.inForce().Admin.Listen
	ask := func(model string) (decision.Record, []tokens.Found) {
		t.Helper()
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model)
		resp, err := http.Post("http://"+admin+"/debug/explain", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var v struct {
			Decision   decision.Record
			Tokenizers []tokens.Found
		}
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v.Decision, v.Tokenizers
	}
	until(t, "ids are computed in process", func() bool { d, _ := ask("m"); return d.Source == tokens.FromInProcess })
	for _, model := range []string{"m", "also", "sql"} {
		d, found := ask(model)
		if d.Source != tokens.FromInProcess || d.Tokens == 0 {
			t.Errorf("%s: %d tokens from %s, reason %s", model, d.Tokens, d.Source, d.Reason)
		}
		if len(found) != 1 || found[0].Model != "m" || found[0].From != tokens.FromPath || found[0].Folder != folder || found[0].Error != "" {
			t.Errorf("%s: found %+v", model, found)
		}
	}
	if _, page := get(t, "http://"+admin+"/debug/explain"); !strings.Contains(page, `"from":"path"`) {
		t.Errorf("/debug/explain says nothing of it: %.300s", page)
	}
	var out bytes.Buffer
	std := stdio{In: strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), Out: &out, Err: &out}
	if err := program().Run(t.Context(), []string{"explain", "-admin", admin}, std); err != nil || !strings.Contains(out.String(), folder) {
		t.Errorf("explain: %v\n%s", err, out.String())
	}
}

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
