package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is a checkout, with the values that its files and its last commit determine.
type source struct {
	root    string
	version string    // 0.1.0
	commit  string    // in full
	time    time.Time // of the commit; of every file that is written
}

// readSource reads version, commit and time of the checkout at root. One with changes is
// an error unless changed is given, and so is one with a change since the newest version
// unless snapshot is given.
func readSource(ctx context.Context, root string, snapshot, changed bool) (source, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return source{}, err
	}
	s := source{root: root}
	log, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return s, err
	}
	if s.version, err = newestVersion(log); err != nil {
		return s, err
	}
	if unreleased(log) {
		if !snapshot {
			return s, fmt.Errorf("CHANGELOG.md has changes under Unreleased, so this is not %s: give them a version, or use -snapshot", s.version)
		}
		s.version += "-snapshot"
	}
	head, err := s.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return s, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("git log printed %q instead of a commit and its time", head)
	}
	s.commit, s.time = commit, time.Unix(unix, 0).UTC()
	status, err := s.git(ctx, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return s, err
	}
	if status != "" {
		if !changed {
			return s, errors.New("the checkout has changes, so the result could not be built again: commit them, or use -changed")
		}
		s.version += "-changed"
	}
	return s, nil
}

var heading = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)\b`)

// newestVersion returns the first version that a changelog has a heading for.
func newestVersion(changelog []byte) (string, error) {
	m := heading.FindSubmatch(changelog)
	if m == nil {
		return "", errors.New("CHANGELOG.md has no heading with a version, such as: ## 0.1.0 (2026-11-22)")
	}
	return string(m[1]), nil
}

// unreleased reports whether a changelog has text before its first version, under the
// heading of what is not released.
func unreleased(changelog []byte) bool {
	before := changelog[:heading.FindIndex(changelog)[0]]
	_, after, _ := bytes.Cut(before, []byte("\n## "))
	for line := range bytes.Lines(after) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.EqualFold(bytes.Trim(line, "[]"), []byte("Unreleased")) {
			return true
		}
	}
	return false
}

func (s source) git(ctx context.Context, args ...string) (string, error) {
	out, err := s.command(ctx, "git", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", args[0], strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

func (s source) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = s.root
	return c
}
