package envoy

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/cespare/xxhash/v2"
)

//go:embed *.yaml.tmpl
var templateFiles embed.FS

var templates = template.Must(template.New("envoy").Funcs(template.FuncMap{
	"json": quote, "sni": sni, "certificateName": certificateName,
	"rds": func(d Discovery) string { return d.source("rds") },
	"eds": func(d Discovery, cluster string) string { return d.source(EndpointsOf(cluster)) },
	"lds": func(d Discovery) string { return d.source("lds") },
	"cds": func(d Discovery) string { return d.source("cds") },
}).ParseFS(templateFiles, "*.yaml.tmpl"))

// quote returns s in quotes that YAML and JSON read.
func quote(s string) (string, error) {
	b, err := json.Marshal(s)
	return string(b), err
}

// Discovery is the origin of resources that are not in Envoy's bootstrap: ADS, or
// a folder with the files of [File].
type Discovery string

// ADS is the aggregated stream of [WriteDynamic]'s bootstrap.
const ADS Discovery = "ads"

// File returns the path in d of the file from which Envoy reads one resource type:
// lds, rds, cds, or EndpointsOf a cluster.
func (d Discovery) File(resource string) string { return string(d) + "/" + resource + ".json" }

// EndpointsFile reports whether a file of that name holds endpoints, and returns
// their resource type.
func EndpointsFile(name string) (resource string, ok bool) {
	resource, ok = strings.CutSuffix(name, ".json")
	return resource, ok && strings.HasPrefix(resource, endpointsBegin)
}

const endpointsBegin = "eds-"

// EndpointsOf returns the resource type of a cluster's endpoints: Envoy accepts one
// cluster's endpoints per file.
func EndpointsOf(cluster string) string {
	return endpointsBegin + strconv.FormatUint(xxhash.Sum64String(cluster), 16)
}

// source returns the config_source of a resource type.
func (d Discovery) source(resource string) string {
	if d == ADS {
		return "{ads: {}, resource_api_version: V3}"
	}
	path, _ := quote(d.File(resource))
	return "{path_config_source: {path: " + path + "}, resource_api_version: V3}"
}

// noLimits lifts Envoy's circuit breakers far above the load that one process carries (a
// request costs Envoy some 10 kB, so 1e6 of them 10 GB).
const noLimits = "{max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000, max_retries: 1000000}"

// requestTimeout is the longest that a client may take to send a request: 64 MiB at 1 Mbit/s
// take nine minutes.
const requestTimeout = 10 * time.Minute

// listenerName is the name of the listener and of its routes.
const listenerName = "inference"

// streams are the outputs of the process, by the names that they have as files. As a file
// Envoy cannot open one that is a socket, as that of a systemd service is.
var streams = map[string]string{
	"/dev/stdout": "stdout", "/dev/fd/1": "stdout", "/proc/self/fd/1": "stdout",
	"/dev/stderr": "stderr", "/dev/fd/2": "stderr", "/proc/self/fd/2": "stderr",
}

// usages are the values of KeyUsage, and how Envoy then reads an answer.
var usages = []struct{ Is, Protocol string }{{Is: UsageDetected}, {UsageCompletions, "OPENAI_CHAT_COMPLETIONS"}}

// page returns the data of the templates.
func (o Options) page(from Discovery) map[string]any {
	o = o.WithDefaults()
	fleet := o.fleet()
	in := map[string]any{
		"EnvoyVersion": Version, "Listen": parsed(o.Listen), "Mode": string(o.Mode),
		"MessageTimeout": seconds(o.MessageTimeout), "IdleTimeout": seconds(o.idleTimeout()), "RequestTimeout": seconds(requestTimeout + o.Split.Wait + o.Hold),
		"BodyLimit": o.BodyLimit, "Retries": *o.Retries, "Served": o.Served, "ServedHeader": o.ServedHeader, "HeaderServed": HeaderServed, "Owned": Owned[:],
		"HeaderDestination": HeaderDestination, "MetadataLB": MetadataLB, "MetadataServed": MetadataServed,
		"MetadataSubset": MetadataSubset, "AttributeUpstream": AttributeUpstream,
		"TLS": o.TLS, "ReplicaTLS": o.ReplicaTLS, "NoLimits": noLimits,
		"ListenerName": listenerName, "Discovery": from, "AccessLog": o.AccessLog, "AccessStream": streams[o.AccessLog],
		"ReasonHeader": o.ReasonHeader, "HeaderReason": HeaderReason, "MetadataOwn": MetadataOwn,
		"TagFirstByte": TagFirstByte, "KeyReason": KeyReason, "KeyWithheld": KeyWithheld,
		"MetadataBody": MetadataBody, "KeyModel": KeyModel, "ReadsUsage": o.usageShare() > 0, "Usages": usages, "KeyUsage": KeyUsage, "MetadataUsage": MetadataUsage,
		"KeyPrompt": KeyPrompt, "KeyPredicted": KeyPredicted, "KeyLoads": KeyLoads, "Listing": fleet.Listing, "ListPaths": behind(o.PathPrefixes, "/v1/models"),
	}
	if !o.OperatorPaths {
		in["Refused"], in["RefusedAnswer"] = behind(o.PathPrefixes, operatorPaths...), refusedAnswer
	}
	if !o.EngineHeaders {
		in["Removed"] = EngineHeaders[:]
	}
	o.Split.fill(in, o)
	reads := fleet.ReadsModel || len(fleet.Groups) > 0
	// In BUFFERED_PARTIAL mode Envoy may send the headers on before it chooses the route again.
	in["ReadsModel"], in["SkipsModel"] = reads, reads && o.Mode != BufferedPartial
	routers := o.ExtProc
	if o.Standby != "" {
		in["Standby"] = parsed(o.Standby)
		routers = append(slices.Clone(routers), o.Standby)
	}
	in["ExtProc"], in["ExtProcType"] = parseAll(o.ExtProc), clusterType(routers)
	if o.Admin != "" {
		in["Admin"] = parsed(o.Admin)
	}
	var groups []map[string]any
	for _, g := range fleet.all() {
		groups = append(groups, g.page(in))
	}
	in["Groups"], in["ByModel"], in["Name"] = groups, groups[1:1+len(fleet.Groups)], AllReplicas
	if at := 1 + len(fleet.Groups); at < len(groups) {
		in["Unread"] = groups[at]
	}
	return in
}

// page returns the data of one cluster's template.
func (g Group) page(common map[string]any) map[string]any {
	in := maps.Clone(common)
	var addrs []string
	for _, r := range g.Replicas {
		addrs = append(addrs, r.Addr)
	}
	in["Name"], in["Models"], in["Endpoints"], in["ClusterType"] = g.Name, g.Models, parseAll(addrs), clusterType(addrs)
	return in
}

func execute(w io.Writer, name string, in map[string]any) error {
	if err := templates.ExecuteTemplate(w, name, in); err != nil {
		return fmt.Errorf("envoy: render %s: %w", name, err)
	}
	return nil
}

// parsed splits an address that was validated.
func parsed(s string) addr { a, _ := splitAddr(s); return a }

func parseAll(all []string) (out []addr) {
	for _, s := range all {
		out = append(out, parsed(s))
	}
	return out
}

// clusterType returns STATIC if all addresses have an IP, STRICT_DNS if one has a name.
func clusterType(all []string) string {
	for _, s := range all {
		if !isIP(parsed(s).Host) {
			return "STRICT_DNS"
		}
	}
	return "STATIC"
}

// seconds returns d in the form of protobuf's JSON mapping.
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s"
}
