package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"time"

	"warmroute/internal/cli"
)

// readyTimeout bounds the question whether the router is ready.
const readyTimeout = 5 * time.Second

// direct asks the router itself, whatever proxy the environment names.
var direct = &http.Client{Transport: &http.Transport{}}

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+cmp.Or(c.Health.Listen, c.Admin.Listen)+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := direct.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	fmt.Fprintf(std.Out, "%s", page)
	if resp.StatusCode != http.StatusOK {
		return cli.ErrFailed
	}
	return nil
}
