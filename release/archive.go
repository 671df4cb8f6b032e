package main

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// entry is a file of an archive.
type entry struct {
	name string // with slashes, relative
	from string // the file that holds it; "" for a folder
	mode int64
}

// documents are the files of the checkout that every archive carries.
var documents = []string{"LICENSE", "README.md", "CHANGELOG.md", "examples/standalone/warmroute.yaml", "examples/systemd/warmroute.service"}

// pack writes the archive of one platform: programs and documents under one
// folder that has the archive's name.
func (s source) pack(file, binaries string) error {
	folder := trimExtension(filepath.Base(file))
	var entries []entry
	for _, each := range programs {
		entries = append(entries, entry{path.Join(folder, each.name), filepath.Join(binaries, each.name), 0o755})
	}
	for _, name := range documents {
		entries = append(entries, entry{path.Join(folder, path.Base(name)), filepath.Join(s.root, name), 0o644})
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := writeTar(z, entries, s.time); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

// writeTar writes entries in their order, owned by root, all of time at.
func writeTar(w io.Writer, entries []entry, at time.Time) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		if err := writeEntry(t, e, at); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, e entry, at time.Time) error {
	h := &tar.Header{Name: e.name, Mode: e.mode, ModTime: at, Format: tar.FormatPAX}
	if e.name == cache {
		h.Uid, h.Gid = userID, userID
	}
	if e.from == "" {
		h.Typeflag, h.Name = tar.TypeDir, e.name+"/"
		return t.WriteHeader(h)
	}
	f, err := os.Open(e.from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

func trimExtension(name string) string { return name[:len(name)-len(".tar.gz")] }
