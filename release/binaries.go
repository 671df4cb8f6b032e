package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// programs are the commands that are published. The simulated replica is one
// of them: it lets an installation be tried without a GPU.
var programs = []string{"extproc", "kvsub", "vllmsim"}

// platform is an operating system and a processor, as Go names them.
type platform struct{ os, arch string }

func parsePlatform(s string) (platform, error) {
	system, arch, ok := strings.Cut(s, "/")
	if !ok || system != "linux" || arch == "" {
		return platform{}, fmt.Errorf("platform %q: want linux/ARCH, such as linux/arm64", s)
	}
	return platform{system, arch}, nil
}

// build compiles the programs for p into dir: static, without the machine's
// paths, with the Kubernetes side, stamped with version and commit.
func (s source) build(ctx context.Context, p platform, dir string) error {
	const stamped = "warmroute/internal/telemetry."
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-tags=kube",
		fmt.Sprintf("-ldflags=-s -w -buildid= -X %sreleased=%s -X %scommit=%s", stamped, s.version, stamped, s.commit),
		"-o", dir + string(filepath.Separator),
	}
	for _, name := range programs {
		args = append(args, "./cmd/"+name)
	}
	c := s.command(ctx, "go", args...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s/%s: %w: %s", p.os, p.arch, err, out)
	}
	return nil
}
