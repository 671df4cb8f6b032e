package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
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
	v, err := structpb.NewValue(hint)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
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

// TestPickerAnswersThroughEnvoy: 503 where no replica is ready and 429 where
// all are too far behind, as Envoy passes them on.
func TestPickerAnswersThroughEnvoy(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{string(envoy.Buffered), string(envoy.FullDuplex)} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			busy := startTorture(t, mode, 0, setup{config: picker + "policy: {max_ttft_seconds: 0.001}\n"})
			busy.send(t, sent{body: chatOf(3000), status: http.StatusTooManyRequests, says: "warmroute: saturated"})
			busy.send(t, sent{method: "GET", path: "/v1/models"}) // not judged, not refused
			for _, f := range busy.fronts {
				f.die()
			}
			busy.until("nobody is ready", func() bool { return busy.metrics()[`warmroute_fleet_replicas{state="ready"}`] == 0 })
			busy.send(t, sent{body: chatOf(10), status: http.StatusServiceUnavailable, says: "warmroute: not_ready"})
			if r := busy.reasons(); r["saturated"] != 2 || r["not_ready"] != 2 {
				t.Errorf("reasons %v", r)
			}
		})
	}
}

// replicasCluster is the cluster of the replicas in the bootstrap.
var replicasCluster = regexp.MustCompile(`(?s)  - name: replicas\n.*?(  - name: warmroute\n)`)

// TestAlwaysPickWithoutABalancer: in front of an ORIGINAL_DST cluster, whose only
// host is the named one, every request gets through.
func TestAlwaysPickWithoutABalancer(t *testing.T) {
	t.Parallel()
	for _, mode := range judging {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			tor := startTorture(t, mode, 0, setup{
				config: "filter: {always_pick: true, " + patient + "}\n",
				bootstrap: func(boot string) string {
					return replicasCluster.ReplaceAllString(boot, fmt.Sprintf(`  - name: replicas
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    connect_timeout: 1s
    original_dst_lb_config: {use_http_header: true, http_header_name: %s}
$1`, envoy.HeaderDestination))
				},
			})
			for name, s := range map[string]sent{
				"judged":          {body: chatOf(100)},
				"large":           {path: completionsPath, body: sized(1_500_000)},
				"unreadable":      {body: []byte("{")},
				"empty":           {body: []byte{}},
				"unknown model":   {body: []byte(`{"model":"x","messages":[]}`)},
				"another route":   {path: "/v1/embeddings", body: chatOf(10)},
				"without a body":  {method: "GET", path: "/v1/models"},
				"a client's pick": {body: []byte("{"), header: tor.foreign()},
			} {
				t.Run(name, func(t *testing.T) {
					s.hint = true
					tor.send(t, s)
				})
			}
			tor.idle(t)
			judged, m := 0, tor.metrics()
			for reason, n := range tor.reasons() {
				if decision.Reason(reason).Hint() {
					judged += n
				}
			}
			if anyway := int(m["warmroute_picked_anyway_total"]); tor.hinted != tor.sent || judged+anyway != tor.sent {
				t.Errorf("%d requests: %d arrived with a hint, %d were judged and %d picked anyway", tor.sent, tor.hinted, judged, anyway)
			}
		})
	}
}
