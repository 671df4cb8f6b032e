package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// testImage reads the archive as a container engine would, checks it, and runs
// it with runc: as the image's user, the root file system read-only, no
// capabilities, the host's network.
func testImage(t *testing.T, s source, out string) {
	i := loadImage(t, filepath.Join(out, "warmroute-"+s.version+"-oci.tar"))
	if err := validate.Image(i); err != nil {
		t.Error(err)
	}
	c, err := i.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.User != user || c.Config.Labels["org.opencontainers.image.revision"] != s.commit || c.Architecture != "amd64" {
		t.Errorf("configuration: %+v", c)
	}
	bundle := t.TempDir()
	files := untar(t, mutate.Extract(i), filepath.Join(bundle, "rootfs"))
	if want := []string{certificates, "usr/local/bin/extproc", "usr/local/bin/kvsub", "usr/local/bin/vllmsim", "usr/local/bin/lab"}; !slices.Equal(files, want) {
		t.Errorf("files %v, want %v", files, want)
	}
	folders := map[string]bool{}
	for tr := tar.NewReader(mutate.Extract(i)); ; {
		h, err := tr.Next()
		if err != nil {
			break
		}
		folders[h.Name] = h.Typeflag == tar.TypeDir // its owner is checked with all others
	}
	if !slices.Contains(c.Config.Env, "HF_HOME=/"+cache) || !folders[cache] {
		t.Errorf("no folder for tokenizers: environment %q, folders %v", c.Config.Env, folders)
	}
	if n := bytes.Count(read(t, filepath.Join(bundle, "rootfs", certificates)), []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d root certificates", n)
	}
	serve(t, bundle, c.Config)
}

func loadImage(t *testing.T, file string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	untar(t, f, dir)
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := outer.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = inner.IndexManifest(); err != nil || len(m.Manifests) != 1 || m.Manifests[0].Platform.Architecture != "amd64" {
		t.Fatalf("%+v, %v", m, err)
	}
	i, err := inner.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// serve starts the image's command in a container and requests its health, its
// version and its user; SIGTERM ends it in order.
func serve(t *testing.T, bundle string, image v1.Config) {
	address := freeAddress(t)
	conf := filepath.Join(bundle, "conf")
	config := fmt.Sprintf("listen: 127.0.0.1:0\nadmin: {listen: %q}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\nfleet: {replicas: [{address: \"127.0.0.1:1\"}]}\n", address)
	if err := os.Mkdir(conf, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(conf, "warmroute.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	writeSpec(t, bundle, image, conf)
	name := fmt.Sprintf("warmroute-test-%d", os.Getpid())
	var log bytes.Buffer
	c := exec.Command("runc", "run", "--bundle", bundle, name)
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	defer exec.Command("runc", "delete", "--force", name).Run() //nolint:errcheck // it is gone unless the test failed
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if r, err := http.Get("http://" + address + "/healthz"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("the container ended: %v: %s", err, &log)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the router in the container is not healthy: %s", &log)
		}
	}
	status := string(read(t, fmt.Sprintf("/proc/%d/status", pidOf(t, name))))
	for _, want := range []string{"Uid:\t65532\t65532", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(status, want) {
			t.Errorf("the process has no %q:\n%s", want, status)
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("SIGTERM: %v: %s", err, &log)
		}
	case <-time.After(time.Minute):
		t.Errorf("the container did not end: %s", &log)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func pidOf(t *testing.T, name string) int {
	t.Helper()
	var state struct{ Pid int }
	if err := json.Unmarshal([]byte(sh(t, nil, "runc", "state", name)), &state); err != nil {
		t.Fatal(err)
	}
	return state.Pid
}

// writeSpec writes the bundle's config.json: runc's own default, with the image's
// settings, and the host's network.
func writeSpec(t *testing.T, bundle string, image v1.Config, conf string) {
	t.Helper()
	sh(t, nil, "runc", "spec", "--bundle", bundle)
	file := filepath.Join(bundle, "config.json")
	var spec map[string]any
	if err := json.Unmarshal(read(t, file), &spec); err != nil {
		t.Fatal(err)
	}
	process := spec["process"].(map[string]any)
	process["terminal"] = false
	process["args"] = append(image.Entrypoint, image.Cmd...)
	process["env"] = image.Env
	process["user"] = map[string]any{"uid": 65532, "gid": 65532}
	process["noNewPrivileges"] = true
	process["capabilities"] = map[string]any{}
	spec["root"] = map[string]any{"path": "rootfs", "readonly": true}
	spec["mounts"] = append(spec["mounts"].([]any), map[string]any{"destination": "/etc/warmroute", "type": "bind", "source": conf, "options": []string{"rbind", "ro"}})
	linux := spec["linux"].(map[string]any)
	linux["namespaces"] = slices.DeleteFunc(linux["namespaces"].([]any), func(n any) bool { return n.(map[string]any)["type"] == "network" })
	delete(linux, "resources") // not every machine lets a test make groups of its own
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
