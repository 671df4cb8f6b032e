package tokens

import (
	"context"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
)

// Model has the parts of a model's files and its servers' flags that this package
// needs.
type Model interface {
	Info() render.Info
	// Renderer computes prompts as servers of a version of vLLM do ("": as all versions
	// do), byClass with the tokenizer that Info.ByClass tells of. It may compile the
	// model's template, until ctx ends.
	Renderer(ctx context.Context, version string, byClass bool) (Renderer, error)
}

// Renderer computes prompts as the servers of one version do. It is safe for concurrent
// use; a *render.Server is one, and has the meaning of each method.
type Renderer interface {
	Moments(now time.Time) []time.Time
	Prompts(j render.Job) (ids [][]uint32, features openai.Features, setting uint64, err error)
}

// Flags are the flags with which a model's servers were started.
type Flags = render.Flags

// LoadFolder opens a model's folder; see render.Open.
func LoadFolder(ctx context.Context, dir string, f Flags) (Model, error) {
	m, err := render.Open(ctx, dir, f)
	if err != nil {
		return nil, err
	}
	return folder{m}, nil
}

// folder is the Model of a folder.
type folder struct{ *render.Model }

// Renderer implements Model.
func (f folder) Renderer(ctx context.Context, version string, byClass bool) (Renderer, error) {
	s, err := f.Server(ctx, version, nil)
	if err == nil && byClass {
		s, err = s.ByClass()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}
