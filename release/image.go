package main

import (
	"bytes"
	"encoding/pem"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	user         = "65532:65532" // neither root nor a user of the host
	userID       = 65532
	certificates = "etc/ssl/certs/ca-certificates.crt"
	cache        = "var/cache/warmroute" // of tokenizer files; a new volume that is mounted there takes over its owner
)

// image is the container image of one platform: the programs, Mozilla's root
// certificates and the empty folder cache, which belongs to its user. It needs no writable
// file system.
func (s source) image(p platform, binaries, scratch string) (v1.Image, error) {
	roots := filepath.Join(scratch, "roots.pem")
	if err := os.WriteFile(roots, rootCertificates(), 0o644); err != nil {
		return nil, err
	}
	entries := []entry{{"etc", "", 0o755}, {"etc/ssl", "", 0o755}, {"etc/ssl/certs", "", 0o755}, {certificates, roots, 0o644}, {"var", "", 0o755}, {"var/cache", "", 0o755}, {cache, "", 0o755}, {"usr", "", 0o755}, {"usr/local", "", 0o755}, {"usr/local/bin", "", 0o755}}
	for _, each := range programs {
		entries = append(entries, entry{path.Join("usr/local/bin", each.name), filepath.Join(binaries, each.name), 0o755})
	}
	var files bytes.Buffer
	if err := writeTar(&files, entries, s.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	i, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.time}, CreatedBy: "warmroute/release"}})
	if err != nil {
		return nil, err
	}
	c, err := i.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(i, s.configure(c.DeepCopy(), p))
}

// configure completes c, which names the image's layers.
func (s source) configure(c *v1.ConfigFile, p platform) *v1.ConfigFile {
	c.OS, c.Architecture, c.Created = p.os, p.arch, v1.Time{Time: s.time}
	c.Config = v1.Config{
		User:         user,
		Entrypoint:   []string{"/usr/local/bin/extproc"},
		Cmd:          []string{"serve", "-config", "/etc/warmroute/warmroute.yaml"},
		Env:          []string{"PATH=/usr/local/bin", "HF_HOME=/" + cache},
		ExposedPorts: map[string]struct{}{"9002/tcp": {}, "9006/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "warmroute",
			"org.opencontainers.image.version":  s.version,
			"org.opencontainers.image.revision": s.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return c
}

// rootCertificates are Mozilla's as one PEM file, without certificates that are only
// trusted under a condition.
func rootCertificates() []byte {
	var b bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}) // a Buffer takes everything
		}
	}
	return b.Bytes()
}

// saveImages writes the images as one OCI archive: a tar of an OCI layout, as
// docker load, podman load and kind load take it.
func (s source) saveImages(file, scratch string, images map[platform]v1.Image) error {
	var index v1.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range sorted(images) {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: images[p], Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	dir := filepath.Join(scratch, "image")
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s.version, "io.containerd.image.name": "docker.io/library/warmroute:" + s.version})); err != nil {
		return err
	}
	entries, err := tree(dir)
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeTar(f, entries, s.time); err != nil {
		return err
	}
	return f.Close()
}

func sorted(images map[platform]v1.Image) []platform {
	var all []platform
	for p := range images {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b platform) int { return strings.Compare(a.os+"/"+a.arch, b.os+"/"+b.arch) })
	return all
}

// tree lists the files under dir in the order of names.
func tree(dir string) ([]entry, error) {
	var entries []entry
	err := filepath.WalkDir(dir, func(file string, d os.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		e := entry{filepath.ToSlash(name), file, 0o644}
		if d.IsDir() {
			e.from, e.mode = "", 0o755
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}
