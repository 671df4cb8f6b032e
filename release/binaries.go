package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// program is a command that is published, of the module in a folder.
type program struct{ name, module string }

// programs are the commands that are published. vllmsim lets an installation be
// tried without a GPU, and lab replays an operator's log under other policies.
var programs = []program{{"extproc", "."}, {"kvsub", "."}, {"vllmsim", "lab"}, {"lab", "lab"}}

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
	stamp := fmt.Sprintf("-ldflags=-s -w -buildid= -X %sreleased=%s -X %scommit=%s", stamped, s.version, stamped, s.commit)
	for _, each := range programs {
		c := s.command(ctx, "go", "-C", each.module, "build", "-trimpath", "-buildvcs=false", "-tags=kube", stamp, "-o", dir+string(filepath.Separator), "./cmd/"+each.name)
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s for %s/%s: %w: %s", each.name, p.os, p.arch, err, out)
		}
	}
	return nil
}
