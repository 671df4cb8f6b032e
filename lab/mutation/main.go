package main

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed mutant.go.txt
var runtime []byte

// test is one test of one binary.
type test struct {
	bin, dir, name string
	took           time.Duration
	reaches        map[int]bool
}

func main() {
	tests := flag.String("tests", "", "packages whose tests are run, comma-separated (default: the package's own)")
	run := flag.String("run", ".", "tests to run")
	skip := flag.String("skip", "Alloc", "tests to leave out")
	statements := flag.Bool("statements", false, "leave out statements, too")
	at := flag.String("at", ".", "try only mutants at such places, as file.go:line:column")
	sample := flag.Int("sample", 0, "try only so many mutants, chosen by a fixed seed (0: all)")
	workers := flag.Int("workers", 1, "mutants at a time")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	o := options{pkg: flag.Arg(0), tests: cmp.Or(*tests, flag.Arg(0)), run: *run, skip: *skip, at: *at, statements: *statements, sample: *sample, workers: *workers}
	if err := mutate(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	pkg, tests, run, skip, at string
	statements                bool
	sample, workers           int
}

// mutate tries the mutants of a package and prints the mutants that no test kills to out.
func mutate(out io.Writer, o options) error {
	run, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	skip, err := regexp.Compile(o.skip)
	if err != nil {
		return err
	}
	at, err := regexp.Compile(o.at)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	home, err := moduleHere()
	if err != nil {
		return err
	}
	r := &rewriter{statements: o.statements, module: home.path}
	files, err := r.rewrite(o.pkg)
	if err != nil {
		return err
	}
	files[filepath.Join(home.folder, "internal/mutant/mutant.go")] = runtime
	overlay, err := overlaid(tmp, files)
	if err != nil {
		return err
	}
	var all []*test
	for i, p := range strings.Split(o.tests, ",") {
		found, err := build(filepath.Join(tmp, "t"+strconv.Itoa(i)), overlay, p, run, skip)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	all = slices.DeleteFunc(all, func(t *test) bool {
		if t.record(filepath.Join(tmp, "record")) {
			return false
		}
		fmt.Fprintf(out, "%s fails without a mutant and is left out\n", t.name)
		return true
	})
	slices.SortStableFunc(all, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	ids := slices.DeleteFunc(rand.New(rand.NewPCG(1, 1)).Perm(len(r.mutants)), func(id int) bool { return !at.MatchString(r.mutants[id].at) })
	if o.sample > 0 && o.sample < len(ids) {
		ids = ids[:o.sample]
	}
	slices.Sort(ids)
	count := verdicts(out, r.mutants, ids, all, o.workers)
	fmt.Fprintf(out, "%s: %d mutants, %d tried: %d killed, %d lived, %d not covered; %d tests\n",
		o.pkg, len(r.mutants), len(ids), count["KILLED"], count["LIVED"], count["NOT COVERED"], len(all))
	return nil
}

// module is a module's path and the folder with its go.mod.
type module struct{ path, folder string }

// moduleHere returns the module of the working folder, to which the package belongs.
func moduleHere() (module, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}").Output()
	path, folder, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
	return module{path, folder}, err
}

// overlaid writes the files, and the overlay that replaces the originals by them.
func overlaid(tmp string, files map[string][]byte) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		at := filepath.Join(tmp, strconv.Itoa(len(replace))+".go")
		if err := os.WriteFile(at, text, 0o600); err != nil {
			return "", err
		}
		replace[name] = at
	}
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	name := filepath.Join(tmp, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// build compiles a package's tests with the mutants and lists them.
func build(bin, overlay, pkg string, run, skip *regexp.Regexp) (tests []*test, err error) {
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", bin, pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", pkg).Output()
	if err != nil {
		return nil, err
	}
	list := exec.Command(bin, "-test.list", "^(Test|Fuzz|Example)")
	list.Dir = strings.TrimSpace(string(dir))
	out, err := list.Output()
	for name := range strings.Lines(string(out)) {
		if name = strings.TrimSpace(name); run.MatchString(name) && !skip.MatchString(name) {
			tests = append(tests, &test{bin: bin, dir: list.Dir, name: name, reaches: map[int]bool{}})
		}
	}
	return tests, err
}

// execute runs tests of one binary, and reports whether they passed.
func execute(bin, dir string, names []string, limit time.Duration, env string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.failfast", "-test.short", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env), time.Second
	err := cmd.Run()
	if err != nil && ctx.Err() == nil && !errors.As(err, new(*exec.ExitError)) {
		fmt.Fprintln(os.Stderr, "mutation:", err)
	}
	return err == nil
}

// record runs a test once and notes the mutants that it reaches; false: the test fails
// even without a mutant.
func (t *test) record(file string) bool {
	defer os.Remove(file)
	start := time.Now()
	if !execute(t.bin, t.dir, []string{t.name}, 5*time.Minute, "MUTANT_RECORD="+file) {
		return false
	}
	t.took = time.Since(start)
	text, _ := os.ReadFile(file)
	for id := range strings.Lines(string(text)) {
		n, _ := strconv.Atoi(strings.TrimSpace(id))
		t.reaches[n] = true
	}
	return true
}

// verdicts tries every mutant and prints the mutants that no test kills.
func verdicts(out io.Writer, mutants []mutant, ids []int, all []*test, workers int) map[string]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	count, work := map[string]int{}, make(chan int)
	for range workers {
		wg.Go(func() {
			for id := range work {
				verdict := try(id, all)
				mu.Lock()
				if count[verdict]++; verdict != "KILLED" {
					fmt.Fprintf(out, "%-11s %-28s %s\n", verdict, mutants[id].at, mutants[id].what)
				}
				mu.Unlock()
			}
		})
	}
	for _, id := range ids {
		work <- id
	}
	close(work)
	wg.Wait()
	return count
}

// together is the longest time of tests that try runs as one.
const together = time.Second

// try runs the tests that reach a mutant with it.
func try(id int, all []*test) string {
	var reach []*test
	for _, t := range all {
		if t.reaches[id] {
			reach = append(reach, t)
		}
	}
	if reach == nil {
		return "NOT COVERED"
	}
	for len(reach) > 0 {
		took, n := reach[0].took, 1
		for n < len(reach) && reach[n].bin == reach[0].bin && took < together {
			took += reach[n].took
			n++
		}
		var names []string
		for _, t := range reach[:n] {
			names = append(names, t.name)
		}
		if !execute(reach[0].bin, reach[0].dir, names, 10*took+2*time.Second, fmt.Sprintf("MUTANT=%d", id)) {
			return "KILLED"
		}
		reach = reach[n:]
	}
	return "LIVED"
}
