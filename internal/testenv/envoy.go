package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Envoy is a running Envoy.
type Envoy struct {
	*Process
	URL   string // of its listener
	Admin string // of its admin page
}

// StartEnvoy runs Envoy on a bootstrap file whose listener and admin page have
// the given addresses, and waits until it is ready.
func StartEnvoy(dir, name string, bootstrap []byte, listen, admin string, args ...string) (*Envoy, error) {
	binary, err := EnvoyBinary()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, name+".yaml")
	if err := os.WriteFile(file, bootstrap, 0o644); err != nil {
		return nil, fmt.Errorf("testenv: %w", err)
	}
	args = append([]string{"-c", file, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"}, args...)
	p, err := Start(dir, name, nil, binary, args...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.WaitHTTP(ctx, "http://"+admin+"/ready"); err != nil {
		p.Stop()
		return nil, err
	}
	return &Envoy{Process: p, URL: "http://" + listen, Admin: "http://" + admin}, nil
}
