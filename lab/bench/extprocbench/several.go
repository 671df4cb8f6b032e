package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// severalCommand measures the cost to Envoy of several models: three Envoys in turn, each
// before a no-op ext_proc server and an upstream that only reads. The first has one model.
// The others have two, and differ in the server's answers, which name no model or name it.
func severalCommand(ctx context.Context, args []string) error {
	f := flagSet("several")
	seconds := f.Float64("s", 1.5, "seconds of one measurement")
	rounds := f.Int("rounds", 3, "measurements of each, in turn")
	if err := f.Parse(args); err != nil {
		return err
	}
	t := turns{time.Duration(*seconds * float64(time.Second)), *rounds}
	reads := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	return compareEnvoys(ctx, reads, severalVariants, func(envoys [3]*testenv.Envoy) error {
		fmt.Printf("\n| body | Envoy CPU-ms, one model | several, read by Envoy | several, named by ext_proc | × read | × named |\n|---|---|---|---|---|---|\n")
		for _, kb := range []int{16, 220} {
			for _, ids := range []bool{false, true} {
				if err := severalRow(ctx, t, envoys, kb, ids); err != nil {
					return err
				}
			}
		}
		return differ(envoys)
	})
}

// severalModel is the model of the requests.
const severalModel = "sim"

// severalVariants are the Envoys to compare.
func severalVariants(upstream string) (all [3]variant) {
	two := envoy.Serving(upstream)
	for _, model := range []string{severalModel, "other"} {
		two.Groups = append(two.Groups, envoy.Group{Name: "model:" + model, Models: []string{model}, Replicas: two.Replicas})
	}
	all[0].options.Fleet, all[1].options.Fleet, all[2].options.Fleet = envoy.Serving(upstream), two, two
	all[2].noop = []string{"-model", severalModel}
	return all
}

// differ checks that all Envoys called ext_proc, that only the second read the model, and
// that those with several models found the cluster of the requests' model.
func differ(envoys [3]*testenv.Envoy) error {
	for i, e := range envoys {
		var page bytes.Buffer
		if err := get(e.Admin+"/stats?usedonly&filter=ext_proc.streams_started|json_to_metadata.rq.success|upstream_rq_total", &page); err != nil {
			return err
		}
		asked, read := strings.Contains(page.String(), "streams_started: "), strings.Contains(page.String(), "rq.success: ")
		whole := strings.Contains(page.String(), "cluster."+envoy.AllReplicas+".upstream_rq_total: ")
		if !asked || read != (i == 1) || whole != (i == 0) {
			return fmt.Errorf("envoy %d: ext_proc asked %v, models read %v, all replicas used %v: %s", i, asked, read, whole, page.String())
		}
	}
	return nil
}

func severalRow(ctx context.Context, t turns, envoys [3]*testenv.Envoy, kb int, ids bool) error {
	g := genConfig{size: kb << 10, count: 64, prefixes: 8, sessions: 32, share: .75, seed: int64(kb), model: severalModel, ids: ids}
	bodies, err := g.bodies()
	if err != nil {
		return err
	}
	kind := map[bool]string{false: "chat", true: "ids"}[ids]
	return t.costRow(fmt.Sprintf("%s %d KB", kind, kb), envoys, func(e *testenv.Envoy, n int) error { return post(ctx, e.URL+g.path(), bodies[n%len(bodies)]) })
}
