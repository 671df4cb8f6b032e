package feed

import (
	"testing"

	"warmroute/internal/fleet"
)

// TestDraftModelsThatLookAheadAreDoubted: vLLM 0.33 hashes what it drafts in a way
// that is not followed, so being told its draft groups does not make it exact.
func TestDraftModelsThatLookAheadAreDoubted(t *testing.T) {
	for _, c := range []struct {
		version, drafts string
		doubted         bool
	}{
		{"0.32.0", "all", false}, {"0.33.0", "all", true}, {"0.33.0", "none", false}, {"0.33.0", "", false},
		{"0.34.1", "0,2", true}, {"1.0.0", "0", true}, {"", "all", false}, {"0.21.0+cpu", "all", false},
	} {
		told := toldOf(&fleet.Replica{Version: c.version, Cache: fleet.CacheOptions{DraftGroups: c.drafts}})
		if got := told.Doubt != ""; got != c.doubted || told.EagleTold != (c.drafts != "") {
			t.Errorf("vLLM %q with draft groups %q: doubt %q, told %v", c.version, c.drafts, told.Doubt, told.EagleTold)
		}
	}
}

// TestWhatASidecarCannotTellIsALimit: where a sidecar stands between, reports in
// full and the groups of vLLM 0.21 are never called exact.
func TestWhatASidecarCannotTellIsALimit(t *testing.T) {
	for _, c := range []struct {
		replica fleet.Replica
		limited bool
	}{
		{fleet.Replica{Sidecar: true, Version: "0.32.0"}, false},
		{fleet.Replica{Sidecar: true, Version: "0.32.0", KVReportFull: true}, true},
		{fleet.Replica{Version: "0.32.0", KVReportFull: true}, false},
		{fleet.Replica{Sidecar: true, Version: "0.21.0"}, true},
		{fleet.Replica{Version: "0.21.0"}, false},
	} {
		if got := toldOf(&c.replica).Limit; (got != "") != c.limited {
			t.Errorf("sidecar %v, vLLM %s, full reports %v: %q", c.replica.Sidecar, c.replica.Version, c.replica.KVReportFull, got)
		}
	}
}
