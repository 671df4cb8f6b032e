package xds

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"

	"warmroute/envoy"
)

// stage is something to publish.
type stage struct {
	live  *envoy.Resources
	files *envoy.Resources // nil: no files are wanted
}

// stages returns the steps from old to s if clusters or routes change: first the
// clusters of both with the old routes, then the new routes, then only the clusters
// that a route uses.
func stages(old, s stage) []stage {
	both := func(o, n *envoy.Resources) (clusters, routes *envoy.Resources) {
		if n == nil || o == nil {
			return n, n
		}
		u := union(o, n)
		return &envoy.Resources{Listener: o.Listener, Routes: o.Routes, Clusters: u.Clusters, Endpoints: u.Endpoints},
			&envoy.Resources{Listener: n.Listener, Routes: n.Routes, Clusters: u.Clusters, Endpoints: u.Endpoints}
	}
	liveClusters, liveRoutes := both(old.live, s.live)
	fileClusters, fileRoutes := both(old.files, s.files)
	return []stage{{liveClusters, fileClusters}, {liveRoutes, fileRoutes}, s}
}

// union returns the clusters of n and the clusters of o that n lacks, with their
// endpoints.
func union(o, n *envoy.Resources) *envoy.Resources {
	has := names(n)
	u := &envoy.Resources{Clusters: append(n.Clusters[:0:0], n.Clusters...), Endpoints: append(n.Endpoints[:0:0], n.Endpoints...)}
	for _, c := range o.Clusters {
		if !has[c.GetName()] {
			u.Clusters = append(u.Clusters, c)
		}
	}
	for _, e := range o.Endpoints {
		if !has[e.GetClusterName()] {
			u.Endpoints = append(u.Endpoints, e)
		}
	}
	return u
}

// resources returns the resources of r by type.
func resources(r *envoy.Resources) map[resourcev3.Type][]types.Resource {
	out := map[resourcev3.Type][]types.Resource{
		resourcev3.ListenerType: {r.Listener}, resourcev3.RouteType: {r.Routes},
	}
	for _, c := range r.Clusters {
		out[resourcev3.ClusterType] = append(out[resourcev3.ClusterType], c)
	}
	for _, e := range r.Endpoints {
		out[resourcev3.EndpointType] = append(out[resourcev3.EndpointType], e)
	}
	return out
}

// publish sends s to connected Envoys and keeps it for later ones.
func (p *Publisher) publish(s stage) error {
	snapshot := &cachev3.Snapshot{}
	for kind, list := range resources(s.live) {
		version, err := hash(list)
		if err != nil {
			return err
		}
		snapshot.Resources[cachev3.GetResponseType(kind)] = cachev3.NewResources(version, list)
	}
	if err := snapshot.ConstructVersionMap(); err != nil {
		return fmt.Errorf("xds: %w", err)
	}
	if err := p.cache.SetSnapshot(context.Background(), fleetNode, snapshot); err != nil { // fails with its context only
		return fmt.Errorf("xds: %w", err)
	}
	p.previous = &s
	if s.files != nil {
		p.write(s.files)
	}
	return nil
}

// hash returns a version for content.
func hash(list []types.Resource) (string, error) {
	h := xxhash.New()
	for _, r := range list {
		b, err := cachev3.MarshalResource(r)
		if err != nil {
			return "", fmt.Errorf("xds: %w", err)
		}
		_, _ = h.Write(b)
		_, _ = h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
