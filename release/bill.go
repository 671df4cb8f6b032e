package main

import (
	"cmp"
	"debug/buildinfo"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill writes which modules are linked into the programs, in CycloneDX 1.6,
// read from the binaries themselves.
func (s source) bill(file, binaries string) error {
	modules := map[string]cdx.Component{}
	for _, each := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(binaries, each.name))
		if err != nil {
			return err
		}
		add(modules, "std", info.GoVersion)
		for _, m := range info.Deps {
			if m.Path == "warmroute" || strings.HasPrefix(m.Path, "warmroute/") {
				continue // the bill's own subject
			}
			if m.Replace != nil {
				m = m.Replace
			}
			add(modules, m.Path, m.Version)
		}
	}
	own := component("warmroute", s.version)
	own.Type = cdx.ComponentTypeApplication
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Timestamp: s.time.Format(time.RFC3339), Component: &own}
	parts := slices.SortedFunc(maps.Values(modules), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	b.Components = &parts
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(b, cdx.SpecVersion1_6); err != nil {
		return err
	}
	return f.Close()
}

func add(modules map[string]cdx.Component, path, version string) {
	c := component(path, version)
	modules[c.BOMRef] = c
}

func component(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
