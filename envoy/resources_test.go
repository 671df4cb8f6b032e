package envoy

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"warmroute/internal/certs"
)

// twoModels is a fleet of two.
func twoModels() Fleet {
	f := Serving("10.0.0.1:8000", "10.0.0.2:8000", "[2001:db8::1]:8000")
	f.Groups = []Group{
		{Name: "model:org/a", Models: []string{"gpt", `odd "name" {}: #`, "org/a"}, Replicas: f.Replicas[:2]},
		{Name: "model:b", Models: []string{"b"}, Replicas: f.Replicas[2:]},
	}
	f.Listing = `{"object":"list","data":[{"id":"b"}]}`
	return f
}

// unreadReplica is a fleet of one model with a replica that has never said what it serves.
func unreadReplica() Fleet {
	f := Serving("10.0.0.1:8000", "10.0.0.2:8000")
	f.ReadsModel, f.Unread = true, Group{Name: Unread, Models: []string{"m"}, Replicas: f.Replicas[1:]}
	return f
}

// TestResourcesAreWhatIsPrinted: one source of truth, for every mode, with one
// model and with several.
func TestResourcesAreWhatIsPrinted(t *testing.T) {
	for _, mode := range []Mode{Buffered, BufferedPartial, FullDuplex} {
		for name, fleet := range map[string]Fleet{"one": Serving("10.0.0.1:8000", "10.0.0.2:8000"), "several": twoModels(), "unread": unreadReplica()} {
			o := Options{Mode: mode, Fleet: fleet, UsageShare: new(10), ReasonHeader: true, ServedHeader: true, Standby: "10.0.0.9:9002", TLS: certs.ClientOptions{Enabled: true, CAFile: "ca"}}
			printed := parse(t, []byte(render(t, o))).StaticResources
			r, err := Render(o, "")
			if err != nil {
				t.Fatalf("%s, %s: %v", mode, name, err)
			}
			same := func(what string, a, b proto.Message) {
				t.Helper()
				if !proto.Equal(a, b) {
					t.Errorf("%s, %s: %s differs:\n%s\n%s", mode, name, what, protojson.Format(a), protojson.Format(b))
				}
			}
			same("listener", printed.Listeners[0], r.Listener)
			if len(printed.Clusters) != len(r.Clusters) {
				t.Fatalf("%s: %d clusters are printed, %d are resources", name, len(printed.Clusters), len(r.Clusters))
			}
			for i := range r.Clusters {
				same("cluster", printed.Clusters[i], r.Clusters[i])
			}
			for i, e := range r.Endpoints {
				e.Endpoints[0].Metadata = nil // static endpoints need none: see assignment
				same("endpoints", printed.Clusters[i].LoadAssignment, e)
			}
		}
	}
}

// TestOneModelPaysNothing: the configuration that separates models exists only
// where there are several.
func TestOneModelPaysNothing(t *testing.T) {
	if text := render(t, Options{Replicas: []string{"10.0.0.1:8000"}}); strings.Contains(text, "json_to_metadata") {
		t.Error("bodies are read for their model")
	}
	several := render(t, Options{Fleet: twoModels(), PathPrefixes: []string{"/openai"}})
	for _, want := range []string{"json_to_metadata", `path: "/v1/models"`, `path: "/openai/v1/models"`, `cluster: "model:org/a"`, `exact: "odd \"name\" {}: #"`, "direct_response"} {
		if !strings.Contains(several, want) {
			t.Errorf("with several models %s is missing", want)
		}
	}
	for mode, after := range map[Mode]bool{Buffered: true, BufferedPartial: false, FullDuplex: true} {
		text := render(t, Options{Mode: mode, Fleet: twoModels()})
		if got := strings.Index(text, "json_to_metadata") > strings.Index(text, "filters.http.ext_proc"); got != after || strings.Contains(text, "SkipFilter") != after {
			t.Errorf("%s: the model is read after ext_proc, and only where ext_proc does not know it: %v", mode, got)
		}
	}
}
