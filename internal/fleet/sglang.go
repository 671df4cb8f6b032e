package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"warmroute/internal/sglang"
)

// isRefused reports whether err is a 4xx or 501, as for a route that the server does not have.
func isRefused(err error) bool {
	var s status
	return errors.As(err, &s) && (s < 500 || s == http.StatusNotImplemented)
}

// learnServer asks an SGLang, which its models name as their owner, what it says about itself.
func (w *worker) learnServer(ctx context.Context, l, before *learned) {
	if w.sglang = l.Engine == sglang.Name; !w.sglang {
		return
	}
	body, err := w.get(ctx, "/server_info")
	if err == nil {
		if s, err := sglang.Decode(body); err == nil {
			l.SGLang = s
			return
		}
	}
	l.SGLang = new(sglang.Server)
	if before != nil && before.SGLang != nil {
		l.SGLang = before.SGLang
	}
	l.incomplete = l.incomplete || isTransient(err)
}

// published returns where each rank of an SGLang publishes.
func (w *worker) published(s *sglang.Server) (sources []EventSource) {
	e := s.Events
	if e == nil || e.Publisher != "" && e.Publisher != "zmq" {
		return nil
	}
	host := cmp.Or(e.Host, "*")
	if strings.Contains(host, ":") {
		host = "[" + strings.Trim(host, "[]") + "]"
	}
	for rank := range min(max(1, e.Ranks), maxRank+1) {
		one := EventSource{Rank: rank, Endpoint: fmt.Sprintf("tcp://%s:%d", host, e.Port+rank), Topic: e.Topic}
		if !isTCP(one.Endpoint) {
			return sources
		}
		one.Endpoint = eventEndpoint(one.Endpoint, w.host)
		if replay := fmt.Sprintf("tcp://%s:%d", host, e.ReplayPort+rank); e.ReplayPort > 0 && isTCP(replay) {
			one.ReplayEndpoint = eventEndpoint(replay, w.host)
		}
		sources = append(sources, one)
	}
	return sources
}

// ofSGLang completes what is learned of a replica that runs SGLang, and logs what it lacks,
// once.
func (w *worker) ofSGLang(l *learned) {
	s := l.SGLang
	if s.Version != "" {
		l.Version = sglang.Name + " " + s.Version
	}
	l.BlockSize = cmp.Or(l.BlockSize, s.BlockSize())
	if l.BlockSize > 0 {
		l.Blocks = cmp.Or(l.Blocks, max(0, s.Tokens)/l.BlockSize)
	}
	l.CacheOff = s.Disabled
	l.Models = modelsOf(l.Models, s)
	l.Transfer = configuredTransfer(w.options)
	if !w.warned {
		for _, note := range s.Missing(!w.options.NoEvents && !w.options.Sidecar && len(w.options.Events) == 0) {
			w.fleet.log.Warn("replica runs SGLang: "+note, "replica", w.addr)
		}
	}
	w.warned = true
}

// modelsOf returns the models that an SGLang, or the file for it, lists as requests name them: an adapter
// by a base model's name and its own, as in "qwen:sql". The root is the model's path; SGLang lists the
// served name there, and has one model. Adapters are left out beyond MaxModels.
func modelsOf(models []Model, s *sglang.Server) []Model {
	models = slices.Clone(models)
	if s.ModelPath != "" {
		all := bases(models)
		for i := range models {
			models[i].Root, models[i].Base = s.ModelPath, all[0]
		}
	}
	byID := map[string]Model{}
	for _, m := range models {
		if !m.LoRA.Set {
			byID[m.ID] = m
			continue
		}
		m.LoRA.Name = strings.TrimPrefix(m.LoRA.Name, m.Base+sglang.AdapterMark)
		for _, base := range models {
			if !base.LoRA.Set && base.Base == m.Base && len(byID) < MaxModels {
				m.ID = base.ID + sglang.AdapterMark + m.LoRA.Name
				byID[m.ID] = m
			}
		}
	}
	return sortedModels(byID)
}

// loadsPath is SGLang's page of loads, in the format of /metrics.
const loadsPath = "/v1/loads?include=core&format=prometheus"

// readPage reads /metrics into w.page, or the loads of an SGLang. Where an SGLang refuses one
// of them, the next call reads the other.
func (w *worker) readPage(ctx context.Context) error {
	path := "/metrics"
	if w.sglang && w.loadsOnly {
		path = loadsPath
	}
	err := w.fleet.client().metrics(ctx, w.addr, path, &w.page, maxPageBytes)
	if w.sglang && isRefused(err) {
		w.loadsOnly = !w.loadsOnly
	}
	return err
}
