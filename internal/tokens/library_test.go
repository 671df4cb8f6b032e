package tokens

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/must"
)

// gpt2 is the folder of a small tokenizer.
func gpt2(t *testing.T) string {
	t.Helper()
	return must.Get(filepath.Abs(filepath.Join("..", "..", ".cache", "models", "gpt2")))(t)
}

// copyModel copies the files of a model's folder, and one more.
func copyModel(t *testing.T, from string, extra map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	raw := must.Get(os.ReadFile(filepath.Join(from, "tokenizer.json")))(t)
	files := map[string]string{"tokenizer.json": string(raw)}
	for name, text := range extra {
		files[name] = text
	}
	for name, text := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// However a folder is written, and wherever equal files are, a tokenizer is loaded once.
func TestDiscoverySharesEqualModels(t *testing.T) {
	dir := gpt2(t)
	link := filepath.Join(t.TempDir(), "link")
	must.Do(t, os.Symlink(dir, link))
	d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
	for i := range 200 {
		d.served[fmt.Sprintf("m%d", i)] = dir + strings.Repeat("/.", i/2) + strings.Repeat("/", i%2)
	}
	d.served["linked"], d.served["copied"] = link, copyModel(t, dir, nil)
	d.Look(t.Context())
	if s := d.o.Library.Stats(); s.Models != 1 || s.Names != 202 || s.Bytes > 16<<20 {
		t.Errorf("%+v for one tokenizer with 202 names", s)
	}
	var first *localModel
	d.local.models.Range(func(_, v any) bool {
		m := v.(*localModel)
		if first == nil {
			first = m
		}
		if m.Model != first.Model {
			t.Errorf("%s has an encoder or templates of its own", m.name)
		}
		return true
	})
	if first == nil || !d.loaded("m0") || !d.loaded("copied") {
		t.Error("not loaded")
	}
}

// Models that the limits leave no memory for say so, and are loaded once there is some.
func TestLibraryLimits(t *testing.T) {
	dir := gpt2(t)
	other := copyModel(t, dir, map[string]string{"chat_template.jinja": "{{ messages }}"})
	for _, others := range []int{0, mostModels - 1} {
		d := newDiscovered(t, map[string]string{"HF_HOME": t.TempDir()}, false)
		for i := range others {
			d.o.Library.books[[sha256.Size]byte{byte(i)}] = &book{}
		}
		if others == 0 {
			d.o.Library.Limit(20 << 20)
		}
		d.served["a"], d.served["b"] = dir, dir
		d.Look(t.Context())
		d.served["c"] = other
		d.Look(t.Context())
		found := d.Found()
		if s := d.o.Library.Stats(); s.Models != others+1 || s.Names != 2 || !d.loaded("a") || !d.loaded("b") || d.loaded("c") {
			t.Errorf("beside %d others: %+v", others, s)
		}
		if why := found[2].Error; !strings.Contains(why, ErrFull.Error()) || !strings.Contains(why, "tokens.max_loaded_mib") || strings.Contains(why, "\n") {
			t.Errorf("it says %q", why)
		}
		delete(d.served, "a")
		delete(d.served, "b")
		d.Look(t.Context())
		d.now = d.now.Add(keepFor - 1)
		d.Look(t.Context())
		if !d.loaded("a") || !d.loaded("b") {
			t.Errorf("unloaded before %v", keepFor)
		}
		d.now = d.now.Add(discoverRest)
		d.Look(t.Context())
		if s := d.o.Library.Stats(); s.Models != others+1 || s.Names != 1 || d.loaded("a") || d.loaded("b") || !d.loaded("c") {
			t.Errorf("after their replicas are gone: %+v", s)
		}
	}
}

// Files that differ, flags that differ, and a file that is changed make another model, until its last
// loan ends.
func TestLibraryKeepsModelsApart(t *testing.T) {
	dir := copyModel(t, gpt2(t), nil)
	l := NewLibrary(DefaultModelBytes)
	var loans []*Loan
	load := func(f Flags) Model {
		loans = append(loans, must.Get(l.Load(t.Context(), dir, f))(t))
		return loans[len(loans)-1].Model
	}
	none := Flags{StoreBytes: -1}
	a, again := load(none), load(none)
	if a != again || l.Stats().Models != 1 {
		t.Error("equal models are apart")
	}
	utc, zone := load(Flags{StoreBytes: -1, Location: time.UTC}), load(Flags{StoreBytes: -1, Location: time.FixedZone("CET", 3600)})
	if utc != a || zone == a || load(Flags{StoreBytes: -1, MaxLen: 10}) == a {
		t.Error("flags are not told apart, or the default is")
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("{{ 1 }}"), 0o644))
	if load(none) == a || l.Stats().Models != 4 {
		t.Errorf("a changed folder is the same model: %+v", l.Stats())
	}
	for i, loan := range loans {
		if s := l.Stats(); s.Names != len(loans)-i {
			t.Errorf("after %d loans: %+v", i, s)
		}
		loan.End()
	}
	if s := l.Stats(); s.Models != 0 || s.Names != 0 || s.Bytes != 0 {
		t.Errorf("after the last name: %+v", s)
	}
}

// Names that are loaded at once share one load, and its failure.
func TestLibraryConcurrentLoads(t *testing.T) {
	l := NewLibrary(DefaultModelBytes)
	good := gpt2(t)
	broken := copyModel(t, good, map[string]string{"tokenizer.json": "{"})
	var loads sync.WaitGroup
	for range 20 {
		loads.Go(func() {
			if _, err := l.Load(t.Context(), good, Flags{StoreBytes: -1}); err != nil {
				t.Error(err)
			}
		})
		loads.Go(func() {
			if _, err := l.Load(t.Context(), broken, Flags{StoreBytes: -1}); err == nil || errors.Is(err, ErrFull) {
				t.Errorf("the broken one: %v", err)
			}
		})
	}
	loads.Wait()
	if s := l.Stats(); s.Models != 1 || s.Names != 20 {
		t.Errorf("%+v", s)
	}
}

// A model's file that is too large or no file is refused by its name, before it is read.
func TestLibraryRefusesFiles(t *testing.T) {
	l := NewLibrary(DefaultModelBytes)
	for name, size := range map[string]int64{"tokenizer.json": 129 << 20, "tokenizer_config.json": 9 << 20, "chat_template.jinja": 2 << 20, "config.json": 9 << 20} {
		dir := copyModel(t, gpt2(t), map[string]string{name: ""})
		if err := os.Truncate(filepath.Join(dir, name), size); err != nil { // without blocks on the disk
			t.Fatal(err)
		}
		if _, err := l.Load(t.Context(), dir, Flags{}); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "at most") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := l.Stats(); s.Models != 0 {
		t.Errorf("%+v", s)
	}
}

// A model in Mistral's format is known by its own files.
func TestLibraryMistral(t *testing.T) {
	l := NewLibrary(DefaultModelBytes)
	dir := chattest.MistralFolder(t, 3, true)
	a := must.Get(l.Load(t.Context(), dir, Flags{}))(t)
	if b, err := l.Load(t.Context(), dir+"/.", Flags{}); err != nil || b.Model != a.Model {
		t.Error(err)
	}
}
