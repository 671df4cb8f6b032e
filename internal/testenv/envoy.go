package testenv

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
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

// WaitHealthy waits until Envoy uses the first host of a cluster that it checks:
// a router that was away is found again by the next health check.
func (e *Envoy) WaitHealthy(ctx context.Context, cluster string) error {
	for {
		text, err := Get(ctx, e.Admin+"/clusters?filter=^"+cluster+"$")
		if err != nil {
			return err
		}
		if _, flags, ok := strings.Cut(text, "::health_flags::"); ok && strings.HasPrefix(flags, "healthy") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testenv: Envoy does not use cluster %s: %w\n%s", cluster, ctx.Err(), text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// EnvoyStat returns the sum of the counters, on the admin page at addr, whose names end
// with name.
func EnvoyStat(t testing.TB, addr, name string) (sum int) {
	t.Helper()
	page, err := Get(context.Background(), "http://"+addr+"/stats?filter="+regexp.QuoteMeta(name)+"$")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(page) {
		_, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatalf("Envoy's %s", line)
		}
		sum += n
	}
	return sum
}

// Keepalive is how Envoy's connections to a router are checked, in a printed bootstrap.
const Keepalive = "keepalive: {interval: 1s, timeout: 1s}"

// oneWait is a wait of Envoy for the router.
var oneWait = regexp.MustCompile(`timeout: [0-9.]+s`)

// Patient returns a bootstrap in which Envoy waits for so long in each of these places: on a busy
// machine a router, and the streams of its requests in flight, would else count as dead.
func Patient(t testing.TB, bootstrap string, wait time.Duration, places ...string) string {
	t.Helper()
	for _, place := range places {
		longer := strings.Replace(bootstrap, place, oneWait.ReplaceAllString(place, fmt.Sprintf("timeout: %.0fs", wait.Seconds())), 1)
		if longer == bootstrap {
			t.Fatalf("the bootstrap has no %q", place)
		}
		bootstrap = longer
	}
	return bootstrap
}
