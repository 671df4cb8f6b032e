package index

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// set returns a time as the operating system gives it after its wall clock was set: the
// wall reading differs by so much, the monotonic one does not. In a time with both, the
// seconds of the wall clock are in bits 30 to 62 of the first word.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(int64(by/time.Second)) << 30
	return t
}

// TestAWallClockThatJumps: a wall clock that is set by an hour, either way, ends no lease
// and no silent replica, and prolongs neither.
func TestAWallClockThatJumps(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Cleanup(func() { wall = time.Now })
			f := newFixture(t, Options{})
			x := New(Options{ReplicaTTL: 30 * time.Minute})
			t.Cleanup(x.Close)
			inc := x.Begin(a)
			if res, err := x.Apply(&Batch{Holder: a, Incarnation: inc, Events: []Event{f.f.stored(a, TierGPU, f.all())}}); err != nil || res.Stored != 64 {
				t.Fatalf("%+v, %v", res, err)
			}
			keys := []prefixhash.Key{1, 2, 3}
			lend(t, x, f.f.scope, b, keys, Now().Add(30*time.Minute))
			before := Now()
			real := time.Now()
			wall = func() time.Time { return set(time.Now(), by) }
			if seen := wall(); seen.Round(0).Sub(real.Round(0)).Round(time.Hour) != by || seen.Sub(real) < 0 || seen.Sub(real) > time.Minute {
				t.Fatalf("the wall clock is not set: %v, %v", seen, real)
			}
			if apart := Wall().Round(0).Sub(Now().Round(0)).Round(time.Hour); apart != by {
				t.Errorf("Wall and Now are %v apart", apart)
			}
			if passed := Now().UnixNano() - before.UnixNano(); passed < 0 || passed > int64(time.Minute) {
				t.Errorf("%v passed", time.Duration(passed))
			}
			x.Sweep()
			if n := x.Holdings(a); n != 64 {
				t.Errorf("%d blocks of a replica that was silent for a moment, want 64", n)
			}
			if n := x.counts().Blocks - 64; n != 3 {
				t.Errorf("%d leases of half an hour, want 3", n)
			}
			lend(t, x, f.f.scope, b, []prefixhash.Key{9}, before) // over: a clock set back would keep it
			if n := x.counts().Blocks - 64; n != 3 {
				t.Errorf("%d leases, want 3: one that is over counts", n)
			}
		})
	}
}

// TestNumbersOfTimesFollowNow: no package of the router both reads the operating system's
// clock and makes numbers of times, which do not have the monotonic reading. Such packages
// take the clock Now.
func TestNumbersOfTimesFollowNow(t *testing.T) {
	exempt := []string{
		filepath.Join("..", "index", "clock.go"),              // Now itself
		filepath.Join("..", "internal", "kvevents", "kvtest"), // events of tests have the times that vLLM gives them
	}
	reads, numbers := map[string]string{}, map[string]string{} // a place, by folder
	must.Do(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if slices.Contains(exempt, path) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if path != ".." && (err == nil || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		return clockUses(path, reads, numbers)
	}))
	if len(reads) == 0 || numbers[filepath.Join("..", "index")] == "" {
		t.Fatalf("the test reads no source: %v, %v", reads, numbers)
	}
	for folder, at := range reads {
		if number := numbers[folder]; number != "" {
			t.Errorf("%s reads time.Now, and %s makes a number of a time: use index.Now", at, number)
		}
	}
}

// clockUses notes where a file mentions time.Now, and where it makes a number of a time.
func clockUses(path string, reads, numbers map[string]string) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder := filepath.Dir(path)
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Unix") {
				numbers[folder] = files.Position(s.Sel.Pos()).String()
			}
		}
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Now" {
			if p, ok := s.X.(*ast.Ident); ok && p.Name == "time" {
				reads[folder] = files.Position(s.Pos()).String()
			}
		}
		return true
	})
	return nil
}
