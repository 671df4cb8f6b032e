package filter

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"warmroute/envoy"
)

// subsetOf reads the gateway's subset hint: a list of strings or one string
// with commas, "ip:port" or "ip". nil means no hint; an empty list forbids
// every replica. Endpoint-picker protocol 004.
func subsetOf(md *corev3.Metadata) []string {
	v, ok := md.GetFilterMetadata()[envoy.MetadataSubset].GetFields()[envoy.KeySubset]
	if !ok {
		return nil
	}
	subset := []string{}
	add := func(list string) {
		for s := range strings.SplitSeq(list, ",") {
			if s = strings.TrimSpace(s); s != "" {
				subset = append(subset, s)
			}
		}
	}
	add(v.GetStringValue())
	for _, item := range v.GetListValue().GetValues() {
		add(item.GetStringValue())
	}
	return subset
}

// servedEndpoint returns the upstream that really served, from the load
// balancer's metadata or the upstream.address attribute, or "" if Envoy sends
// neither.
func servedEndpoint(m *request) string {
	lb := m.GetMetadataContext().GetFilterMetadata()[envoy.MetadataLB]
	if served := lb.GetFields()[envoy.MetadataServed].GetStringValue(); served != "" {
		return served
	}
	for _, set := range m.GetAttributes() {
		if v, ok := set.GetFields()[envoy.AttributeUpstream]; ok {
			return v.GetStringValue()
		}
	}
	return ""
}
