package main

import (
	"os"
	"strings"
	"testing"

	"warmroute/internal/config"
)

// TestRemovedSettings: a file that has one is refused with what holds instead, wherever its
// section may stand; no document names it, and none of them is a setting.
func TestRemovedSettings(t *testing.T) {
	fields, _ := referenceAndNames(t)
	for name, text := range documents(t) {
		for path := range removed {
			if strings.Contains(string(text), "`"+path+"`") {
				t.Errorf("%s names %s, which is no setting any more", name, path)
			}
		}
	}
	for path := range removed {
		for _, f := range fields {
			if f.Path == path {
				t.Errorf("%s is a setting", path)
			}
		}
	}
	for text, want := range map[string]string{
		"fleet: {max_replicas: 3}":                   "f:1: fleet.max_replicas: is not a setting any more: there can be 4,096 replicas",
		"fleet: {dns: [{}, {every: 1s}]}":            "f:1: fleet.dns[1].every: is not a setting any more: names are looked up every second",
		"kubernetes: {replica: {hash_algorithm: x}}": "f:1: kubernetes.replica.hash_algorithm: is not a setting any more: it is reported, or detected from the KV events",
		"xds: {tls: {every: 1s}}":                    "f:1: xds.tls.every: is not a setting any more: the files are read every second",
		"tokens: {models: [{id: m, store_mib: 3}]}":  "f:1: tokens.models[0].store_mib: is not a setting any more: the beginnings",
		"fleet: {scrape_timeot: 1s}":                 "f:1: fleet.scrape_timeot: is not a known field",
	} {
		if _, err := config.Parse("f", []byte(text), defaultConfig(), os.LookupEnv); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
