package predict

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
	"warmroute/internal/reporter"
	"warmroute/internal/testenv/rpc"
)

// sidecar gives batches to the index as kvsub does, over the index service.
type sidecar struct {
	*reporter.Reporter
	batches int
	again   int // everything is reported again after so many batches
}

func (s *sidecar) Apply(b *index.Batch) (index.Result, error) {
	r, err := s.Reporter.Apply(b)
	if s.batches++; s.batches == s.again {
		s.Resync()
	}
	if err == nil {
		err = s.Flush(context.Background())
	}
	return r, err
}

func newSidecar(t *testing.T, p *Predictor, again int) *sidecar {
	t.Helper()
	server := indexrpc.New(p.index, indexrpc.Options{})
	conn := rpc.Dial(t, func(ctx context.Context, l net.Listener) error { return server.Serve(ctx, l) })
	return &sidecar{Reporter: reporter.New(indexpb.NewCacheIndexClient(conn), replica, reporter.Options{Model: model}), again: again}
}

// TestCapturesThroughASidecar: a sidecar's reports of a replica's cache groups are
// as good as its events if these name kinds and full attention shows the places of
// blocks and there are no adapters; otherwise less is credited. A repeated report counts as
// a copy there.
func TestCapturesThroughASidecar(t *testing.T) {
	exact := 0
	for name, c := range captures(t) {
		t.Run(name, func(t *testing.T) {
			p := newPredictor(t)
			p.sink = newSidecar(t, p, len(c.lines)/2)
			s := c.ask(t, p, c.head(t, "version", "hash_algo", "none_hash", "assume", "cache_config_info"))
			if strings.Contains(name, "report") {
				return
			}
			if s.over > 0 {
				t.Errorf("%d of %d credited too much", s.over, s.queries)
			}
			if slices.ContainsFunc(c.lines, func(l captured) bool { return bytes.Contains(l.text, []byte(`"lora_path"`)) }) {
				if s.exact > 0 {
					t.Errorf("%d are called exact, and the sidecar does not know from where adapters were loaded", s.exact)
				}
				return
			}
			if c.untold(t) || s.exact == 0 {
				return
			}
			exact++
			if s.right != s.queries || s.exact < s.queries*9/10 {
				t.Errorf("%d of %d right, %d called exact", s.right, s.queries, s.exact)
			}
		})
	}
	if exact < 38 {
		t.Errorf("only %d captures are called exact", exact)
	}
}
