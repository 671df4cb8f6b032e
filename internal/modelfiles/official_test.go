package modelfiles

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"warmroute/render/testkit/must"
	"warmroute/render/testkit/oracle"
)

// The official client finds files fetched here without a request to the hub, and
// files that it fetches are found here: the same folder, the same files.
func TestTheOfficialClientSharesTheCache(t *testing.T) {
	p := must.Get(oracle.Start("hub.py"))(t)
	defer p.Close()
	fake, h, home := newHub(t)
	official := func(file, cache string, local bool) (path string) {
		t.Helper()
		var answer struct{ Path, Sha256 string }
		q := map[string]any{"endpoint": h.endpoint, "cache": cache, "repo": "own/model", "file": file, "local": local}
		if err := p.Ask(q, &answer); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if want := fmt.Sprintf("%x", sha256.Sum256([]byte(fake.files[file]))); answer.Sha256 != want {
			t.Errorf("%s has the hash %s, want %s", file, answer.Sha256, want)
		}
		return answer.Path
	}
	dir := must.Get(h.Fetch(context.Background(), "own/model"))(t)
	asked := fake.asked
	for file := range fake.files {
		if path := official(file, filepath.Join(home, "hub"), true); path != filepath.Join(dir, file) {
			t.Errorf("the official client finds %s", path)
		}
	}
	if fake.asked != asked {
		t.Errorf("the official client asked the hub %d times", fake.asked-asked)
	}
	theirs := t.TempDir()
	for file := range fake.files {
		official(file, theirs, false)
	}
	other := open(t, map[string]string{"HF_HUB_CACHE": theirs, "HF_HUB_OFFLINE": "1"})
	found, err := other.Find("own/model")
	if err != nil || Commit(found) != commit {
		t.Fatalf("%s, %v", found, err)
	}
	for file, text := range fake.files {
		if got, err := os.ReadFile(filepath.Join(found, file)); err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", file, len(got), err)
		}
	}
}
