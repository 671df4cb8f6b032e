package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"warmroute/internal/bearer"
	"warmroute/internal/cli"
)

// readyTimeout bounds the question whether the router is ready.
const readyTimeout = 5 * time.Second

// direct asks the router itself, whatever proxy the environment names.
var direct = &http.Client{Transport: &http.Transport{}}

// call sends a request to the running router, and returns its answer with the body as text.
func call(ctx context.Context, method, url string, body io.Reader, token *bearer.Token) (resp *http.Response, text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, nil, err
	}
	if token != nil {
		req.Header.Set("Authorization", token.Header())
	}
	if resp, err = direct.Do(req); err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp, text, err
}

// readyCommand prints /readyz of the running router. It is the health check of containers,
// whose image has no other program that speaks HTTP.
func readyCommand(ctx context.Context, args []string, std stdio) error {
	path, err := configFlags(std, "ready", args, func(*flag.FlagSet) {})
	if err != nil {
		return err
	}
	c, err := loadConfig(path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	resp, page, err := call(ctx, http.MethodGet, "http://"+cmp.Or(c.Health.Listen, c.Admin.Listen)+"/readyz", nil, nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "%s", page)
	if resp.StatusCode != http.StatusOK {
		return cli.ErrFailed
	}
	return nil
}
