package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/internal/testenv"
)

// Site is a fleet's simulated replicas, the router and Envoy as an operator starts them:
// Envoy gets the output of `extproc envoy-config`.
type Site struct {
	URL   string // of Envoy's listener
	Admin string // address of the router's admin port

	Replicas []*testenv.Process
	Router   *testenv.Process
}

// StartSite runs a site until the test ends. sections are more of the router's
// configuration; their first lines, if indented, belong to its section admin. Without a section
// filter among them, the router's waits on the path of a request are longer than a busy machine
// takes.
func StartSite(t testing.TB, fleet Fleet, sections string) Site {
	t.Helper()
	s := &Stage{Dir: t.TempDir(), Fleet: fleet}
	site, err := s.site(t.Context(), sections, func(p *testenv.Process) { t.Cleanup(p.Stop) })
	if err != nil {
		t.Fatal(err)
	}
	return site
}

func (s *Stage) site(ctx context.Context, sections string, keep func(*testenv.Process)) (Site, error) {
	if err := s.Build(ctx); err != nil {
		return Site{}, err
	}
	if !strings.Contains(sections, "filter:") {
		sections += "filter: {token_budget: 30s, body_wait: 2m}\n"
	}
	var started []*testenv.Process
	replicas, err := s.startReplicas(ctx, "site", func(p *testenv.Process) { keep(p); started = append(started, p) })
	if err != nil {
		return Site{}, err
	}
	ports, err := testenv.FreePorts(5)
	if err != nil {
		return Site{}, err
	}
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	config := fmt.Sprintf("listen: %s\nlame_duck: 0s\nenvoy: {listen: %q, admin: %q, usage_share: 10}\nxds: {listen: %q}\nindex_service: {listen: \"\"}\nadmin:\n  listen: %q\n%sfleet:\n  replicas:\n",
		at(0), at(2), at(3), at(4), at(1), sections)
	for i, addr := range replicas {
		config += fmt.Sprintf("  - address: %q\n    role: %q\n", addr, s.Fleet.role(i))
	}
	file := filepath.Join(s.Dir, "warmroute.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return Site{}, fmt.Errorf("stage: %w", err)
	}
	router, err := testenv.Start(s.Dir, "router", nil, s.router, "serve", "-config", file)
	if err != nil {
		return Site{}, err
	}
	keep(router)
	if err := wait(ctx, router, "http://"+at(1)+"/readyz"); err != nil {
		return Site{}, err
	}
	bootstrap, err := exec.CommandContext(ctx, s.router, "envoy-config", "-config", file).Output()
	if err != nil {
		return Site{}, fmt.Errorf("stage: print Envoy's configuration: %w", err)
	}
	e, err := testenv.StartEnvoy(s.Dir, "envoy", bootstrap, at(2), at(3))
	if err != nil {
		return Site{}, err
	}
	keep(e.Process)
	return Site{URL: e.URL, Admin: at(1), Replicas: started, Router: router}, nil
}
