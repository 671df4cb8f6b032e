package xds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"warmroute/envoy"
	"warmroute/internal/fleet"
)

// fleetFile is the file that a restarted router reads.
const fleetFile = "fleet.json"

// kept is the content of fleetFile.
type kept struct {
	Fleet  envoy.Fleet              `json:"fleet"`
	Models map[string][]fleet.Model `json:"models"` // that replicas serve or served last, by address
}

// resourceFiles are the resource files except for the endpoints, in the order in
// which they are written: a resource comes before the resources that refer to it.
var resourceFiles = []struct{ name, typeURL string }{
	{"cds", resourcev3.ClusterType}, {"rds", resourcev3.RouteType}, {"lds", resourcev3.ListenerType},
}

// write writes the files of the resources that changed. A file that cannot be
// written is a note, because the stream has the same content.
func (p *Publisher) write(r *envoy.Resources) {
	if err := p.writeAll(r); err != nil {
		p.lost(err)
		return
	}
	p.failed = time.Time{}
	p.setNote(&p.notes.unkept, "")
}

// rewrite writes the files again that could not be written.
func (p *Publisher) rewrite() {
	if p.failed.IsZero() || p.now().Sub(p.failed) < rewriteAfter {
		return
	}
	p.write(p.previous.files)
	p.keep()
}

func (p *Publisher) writeAll(r *envoy.Resources) error {
	written := map[string]string{}
	for _, e := range r.Endpoints {
		if err := p.writeKind(envoy.EndpointsOf(e.GetClusterName()), []types.Resource{e}, written); err != nil {
			return err
		}
	}
	all := resources(r)
	for _, k := range resourceFiles {
		if err := p.writeKind(k.name, all[k.typeURL], written); err != nil {
			return err
		}
	}
	p.written = written
	return p.clean()
}

// alone notes another router that writes to the folder, until it has ended.
func (p *Publisher) alone() {
	if p.lock != nil || p.folder() == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(p.folder(), ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return // a folder that cannot be written is a note of its own
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		p.lock = f
		p.setNote(&p.notes.shared, "")
		return
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		p.setNote(&p.notes.shared, "another router writes to xds.state, too, so that neither finds its own there: give each a folder of its own")
	}
}

// folder returns where the state is kept, "" for nowhere.
func (p *Publisher) folder() string { return p.target.settings.At.State }

// clean removes the endpoints of clusters that are gone, also an earlier
// process's, and its unfinished files.
func (p *Publisher) clean() error {
	entries, err := os.ReadDir(p.folder())
	if err != nil {
		return err
	}
	for _, e := range entries {
		kind, of := envoy.EndpointsFile(e.Name())
		_, ours := p.written[kind]
		if !of && !strings.HasPrefix(e.Name(), unfinished) || ours {
			continue
		}
		if err := os.Remove(filepath.Join(p.folder(), e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (p *Publisher) writeKind(kind string, list []types.Resource, written map[string]string) error {
	version, err := hash(list)
	if err != nil {
		return err
	}
	if written[kind] = version; p.written[kind] == version {
		return nil
	}
	answer := &discoveryv3.DiscoveryResponse{VersionInfo: version}
	for _, r := range list {
		a, err := anypb.New(r)
		if err != nil {
			return err
		}
		answer.Resources = append(answer.Resources, a)
	}
	b, err := protojson.Marshal(answer)
	if err != nil {
		return err
	}
	return replace(envoy.Discovery(p.folder()).File(kind), b)
}

// keep writes the state that a restarted router reads. What was restored stays as it is.
func (p *Publisher) keep() {
	if p.folder() == "" || p.seen == nil {
		return
	}
	models := map[string][]fleet.Model{}
	for _, r := range p.seen.Replicas {
		models[r.Addr] = r.Models
	}
	b, err := json.Marshal(kept{p.target.fleet, models})
	if err == nil {
		err = replace(filepath.Join(p.folder(), fleetFile), b)
	}
	if err != nil {
		p.lost(err)
	}
}

func (p *Publisher) lost(err error) {
	if p.failed.IsZero() {
		p.log.Error("the published state is not stored: an Envoy that starts while the router is down finds an older state", "error", err)
	}
	p.failed = p.now()
	p.setNote(&p.notes.unkept, fmt.Sprintf("xds.state is not written: %v", err))
}

// unfinished is the prefix of the names of unfinished files.
const unfinished = ".new-"

// replace writes a file in one step.
func replace(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), unfinished+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// restore publishes the last published state, so that an Envoy that reconnects
// before the fleet is learned loses nothing.
func (p *Publisher) restore() {
	settings := p.wants()
	if settings.At.State == "" {
		return
	}
	k, err := readKept(settings.At.State)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		s := state{k.Fleet, settings}
		p.wanted = s
		err = p.begin(s)
	}
	if err != nil {
		p.log.Warn("the state in xds.state is not used", "error", err)
		p.wanted = state{}
	}
}

// readKept reads the last published state.
func readKept(folder string) (k kept, err error) {
	b, err := os.ReadFile(filepath.Join(folder, fleetFile))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil && len(k.Fleet.Replicas) == 0 {
		err = errors.New("it lists no replica")
	}
	return k, err
}

// Served returns the models that replicas served last, by address, as far as the folder's
// state has them. A state that cannot be read has none: Run logs why.
func (o Options) Served() map[string][]fleet.Model {
	if o.State == "" {
		return nil
	}
	k, err := readKept(o.State)
	if err != nil {
		return nil
	}
	return k.Models
}

// Kept reports whether a folder holds a state from which an Envoy can start.
func Kept(folder string) bool {
	if folder == "" {
		return false
	}
	for _, k := range resourceFiles {
		if _, err := os.Stat(envoy.Discovery(folder).File(k.name)); err != nil {
			return false
		}
	}
	return true
}
