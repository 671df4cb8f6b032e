package envoy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	// The extensions that the templates name; parsing the templates requires them.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/matcher/action/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ai_protocol_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/json_to_metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/common_inputs/network/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/matching/input_matchers/metadata/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

// Resources are the configuration that an Envoy receives over xDS: the content of
// WriteBootstrap, in pieces.
type Resources struct {
	Listener  *listenerv3.Listener
	Routes    *routev3.RouteConfiguration
	Clusters  []*clusterv3.Cluster // of the replicas, then of warmroute
	Endpoints []*endpointv3.ClusterLoadAssignment
}

// Render makes the resources of o, which refer to d for the rest.
func Render(o Options, d Discovery) (*Resources, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("envoy: %w", err)
	}
	in := o.page(d)
	r := &Resources{Listener: new(listenerv3.Listener), Routes: new(routev3.RouteConfiguration)}
	if err := read("listener", in, r.Listener); err != nil {
		return nil, err
	}
	if err := read("routes", in, r.Routes); err != nil {
		return nil, err
	}
	for _, g := range o.fleet().all() {
		c := new(clusterv3.Cluster)
		if err := read("replicas", g.page(in), c); err != nil {
			return nil, err
		}
		r.Clusters, r.Endpoints = append(r.Clusters, c), append(r.Endpoints, g.assignment(c))
	}
	c := new(clusterv3.Cluster)
	if err := read("warmroute", in, c); err != nil {
		return nil, err
	}
	r.Clusters = append(r.Clusters, c)
	return r, nil
}

// assignment returns the endpoints of g's cluster c. They change with the cluster: an Envoy that is
// sent another cluster keeps the old one until it is sent the endpoints, too, or for 15 s if it is not.
func (g *Group) assignment(c *clusterv3.Cluster) *endpointv3.ClusterLoadAssignment {
	endpoints := make([]*endpointv3.LbEndpoint, 0, len(g.Replicas))
	for _, r := range g.Replicas {
		endpoints = append(endpoints, r.endpoint())
	}
	content, _ := proto.MarshalOptions{Deterministic: true}.Marshal(c) // it was read and validated
	return &endpointv3.ClusterLoadAssignment{ClusterName: g.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: endpoints,
		Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{MetadataOwn: {Fields: map[string]*structpb.Value{
			"cluster": structpb.NewStringValue(strconv.FormatUint(xxhash.Sum64(content), 16)),
		}}}},
	}}}
}

func (e Endpoint) endpoint() *endpointv3.LbEndpoint {
	a := parsed(e.Addr)
	health := corev3.HealthStatus_UNKNOWN
	if e.Down {
		health = corev3.HealthStatus_UNHEALTHY
	}
	return &endpointv3.LbEndpoint{
		HealthStatus: health,
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: a.Host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(a.Port)},
			}}},
		}},
	}
}

// read fills m with the output of the template name: a mapping, or a list of one.
func read(name string, in map[string]any, m interface {
	proto.Message
	ValidateAll() error
}) error {
	var text bytes.Buffer
	if err := execute(&text, name, in); err != nil {
		return err
	}
	var tree any
	if err := yaml.Unmarshal(text.Bytes(), &tree); err != nil {
		return fmt.Errorf("envoy: template %s: %w", name, err)
	}
	if list, ok := tree.([]any); ok && len(list) == 1 {
		tree = list[0]
	}
	j, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("envoy: template %s: %w", name, err)
	}
	if err := protojson.Unmarshal(j, m); err != nil {
		return fmt.Errorf("envoy: template %s: %w", name, err)
	}
	if err := m.ValidateAll(); err != nil {
		return fmt.Errorf("envoy: template %s: %w", name, err)
	}
	return nil
}
