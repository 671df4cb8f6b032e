package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// Places in the bootstrap.
const (
	atRoute       = "              routes:\n"
	atExtProc     = "          - name: envoy.filters.http.ext_proc\n"
	atRouter      = "          - name: envoy.filters.http.router\n"
	atLastCluster = "  - name: warmroute\n"
)

// insert puts text before the first place of boot.
func insert(t *testing.T, boot, place, text string) string {
	t.Helper()
	before, after, found := strings.Cut(boot, place)
	if !found {
		t.Fatalf("the bootstrap has no %q", place)
	}
	return before + strings.TrimPrefix(text, "\n") + place + after
}

// judging are the body modes that can carry a hint.
var judging = []string{string(envoy.Buffered), string(envoy.BufferedPartial), string(envoy.FullDuplex)}

// headerMetadata is the metadata under the destination's key, as a header the upstream
// sees.
const headerMetadata = "X-Test-Metadata"

// showMetadata makes the route add headerMetadata.
func showMetadata(t *testing.T, boot string) string {
	return insert(t, boot, atRoute, fmt.Sprintf(`
              request_headers_to_add:
              - header: {key: %s, value: "%%DYNAMIC_METADATA(%s:%s)%%"}
`, headerMetadata, envoy.MetadataLB, envoy.HeaderDestination))
}

// setSubset makes a filter turn a client's headers into the subset hint, as a
// gateway's own filters would: X-Test-Subset into a string, X-Test-Subset-List
// into any value.
func setSubset(t *testing.T, boot string) string {
	rule := func(header, kind string) string {
		return fmt.Sprintf(`
              - header: %s
                on_header_present: {metadata_namespace: %s, key: %s, %s}
                remove: true`, header, envoy.MetadataSubset, envoy.KeySubset, kind)
	}
	return insert(t, boot, atExtProc, `
          - name: envoy.filters.http.header_to_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:`+rule("x-test-subset", "type: STRING")+rule("x-test-subset-list", "type: PROTOBUF_VALUE, encode: BASE64")+"\n")
}

// subsetHeader has setSubset's filter set the hint: a string, or a list.
func subsetHeader(t *testing.T, hint any) http.Header {
	t.Helper()
	if s, ok := hint.(string); ok {
		return http.Header{"X-Test-Subset": {s}}
	}
	v := must.Get(structpb.NewValue(hint))(t)
	b := must.Get(proto.Marshal(v))(t)
	return http.Header{"X-Test-Subset-List": {base64.StdEncoding.EncodeToString(b)}}
}

const picker = "filter: {picker: true, " + patient + "}\n"

// TestGatewaysSubset: metadata a gateway's filter sets restricts the pick, in
// every shape it comes in; nothing eligible is a 503.
func TestGatewaysSubset(t *testing.T) {
	t.Parallel()
	for _, mode := range judging {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tor := startTorture(t, mode, 0, setup{config: picker, bootstrap: func(boot string) string {
				return showMetadata(t, setSubset(t, boot))
			}})
			tor.extra = map[string]bool{headerMetadata: true}
			a, b := tor.addrs[0], tor.addrs[1]
			for name, c := range map[string]struct {
				hint any
				want []string // replicas that may be named, none = 503
			}{
				"string":              {a, []string{a}},
				"the other":           {b, []string{b}},
				"list":                {[]any{b}, []string{b}},
				"list with strangers": {[]any{"10.9.9.9:1", a, "nonsense"}, []string{a}},
				"commas":              {"10.9.9.9:1, " + b, []string{b}},
				"ip":                  {"127.0.0.1", []string{a, b}},
				"list of ips":         {[]any{"127.0.0.1"}, []string{a, b}},
				"stranger":            {"10.9.9.9:1", nil},
				"list of strangers":   {[]any{"10.9.9.9:1", "10.9.9.9"}, nil},
				"empty list":          {[]any{}, nil},
			} {
				t.Run(name, func(t *testing.T) {
					tor.subset(t, subsetHeader(t, c.hint), c.want)
				})
			}
			t.Run("no hint", func(t *testing.T) { tor.subset(t, nil, []string{a, b}) })
		})
	}
}

// subset sends requests with header and expects exactly the replicas in want.
func (tor *torture) subset(t *testing.T, header http.Header, want []string) {
	t.Helper()
	for _, proto := range protocols {
		s := sent{body: chatOf(3000), header: header, hint: want != nil}
		if want == nil {
			s.status, s.says = http.StatusServiceUnavailable, "warmroute: empty_subset"
		}
		for _, got := range tor.sendBy(t, proto, s) {
			named := strings.Split(got.header.Get(envoy.HeaderDestination), ",")
			slices.Sort(named)
			if !slices.Equal(named, slices.Sorted(slices.Values(want))) || !slices.Contains(want, got.at) {
				t.Errorf("%s: %v are named and %s served, want %v", proto, named, got.at, want)
			}
			if meta := got.header[headerMetadata]; !slices.Equal(meta, got.header["X-Gateway-Destination-Endpoint"]) {
				t.Errorf("%s: metadata %q, header %q", proto, meta, got.header["X-Gateway-Destination-Endpoint"])
			}
		}
	}
}
