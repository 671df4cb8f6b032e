//go:build !kube

package kube

import (
	"log/slog"

	"warmroute/internal/fleet"
)

// Built reports whether this binary has a Kubernetes client.
const Built = false

// New returns ErrNotBuilt: there is no client.
func New(Options, *Status, *slog.Logger) (fleet.Source, error) { return nil, ErrNotBuilt }
