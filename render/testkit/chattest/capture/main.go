// Command capture records a running vLLM's answers to generated requests for /render:
//
//	go run ./render/testkit/chattest/capture -server http://127.0.0.1:8000 -model NAME -out FILE.json.gz
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"

	"warmroute/render/testkit/chattest"
)

func main() {
	server := flag.String("server", "http://127.0.0.1:8000", "`URL` of the server")
	model := flag.String("model", "qwen-tiny", "served model `name`")
	n := flag.Int("n", 600, "number of requests")
	seed := flag.Uint64("seed", 1, "generator seed")
	out := flag.String("out", "", "`file` to write")
	flag.Parse()
	if err := run(*server, *model, *n, *seed, *out); err != nil {
		fmt.Fprintln(os.Stderr, "capture:", err)
		os.Exit(1)
	}
}

func run(server, model string, n int, seed uint64, out string) error {
	var v chattest.Vectors
	resp, err := http.Get(server + "/version")
	if err != nil {
		return err
	}
	err = json.NewDecoder(resp.Body).Decode(&v)
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("version: %w", err)
	}
	// Each request has a connection of its own: after an unexpected exception 0.21 closes
	// the connection.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	refused, unknown := map[string]int{}, 0
	for _, c := range chattest.Generate(seed, n, model) {
		answer, err := chattest.Ask(context.Background(), client, server, c)
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
			answer.Status, err = http.StatusInternalServerError, nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c.Route, err)
		}
		if answer.Status == http.StatusNotFound || answer.Status == http.StatusMethodNotAllowed {
			unknown++ // this version has no /render for this route
			continue
		}
		if answer.Status != 0 {
			refused[fmt.Sprint(c.Route, " ", answer.Status)]++
		}
		v.Vectors = append(v.Vectors, answer)
	}
	fmt.Printf("vLLM %s: %d answers, refused %v, no such route %d\n", v.Version, len(v.Vectors), refused, unknown)
	return chattest.Write(out, v)
}
