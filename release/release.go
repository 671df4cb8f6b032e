package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// release builds for all platforms and writes the archives, the image, the
// bill of materials and SHA256SUMS into out, which must not have files.
func (s source) release(ctx context.Context, out string, platforms []string) error {
	if files, err := os.ReadDir(out); err == nil && len(files) > 0 {
		return fmt.Errorf("%s has files: remove them, or name another folder", out)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "warmroute-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	images := map[platform]v1.Image{}
	var binaries string
	for _, name := range platforms {
		p, err := parsePlatform(name)
		if err != nil {
			return err
		}
		fmt.Printf("%s for %s\n", s.version, name)
		binaries = filepath.Join(scratch, p.os+"-"+p.arch)
		if err := s.build(ctx, p, binaries); err != nil {
			return err
		}
		if err := s.pack(filepath.Join(out, fmt.Sprintf("warmroute-%s-%s-%s.tar.gz", s.version, p.os, p.arch)), binaries); err != nil {
			return err
		}
		if images[p], err = s.image(p, binaries, scratch); err != nil {
			return err
		}
	}
	if err := s.saveImages(filepath.Join(out, "warmroute-"+s.version+"-oci.tar"), scratch, images); err != nil {
		return err
	}
	if err := s.bill(filepath.Join(out, "warmroute-"+s.version+".cdx.json"), binaries); err != nil {
		return err
	}
	return writeSums(out)
}

// writeSums writes SHA256SUMS, as sha256sum -c reads it.
func writeSums(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, f := range files {
		sum, err := sha256File(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums.Bytes(), 0o644)
}

func sha256File(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
