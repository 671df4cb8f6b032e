package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

var (
	lineForm   = regexp.MustCompile(`^(\S+) ((?:R=\d+ (?:replay|events|final|beside a writer|remove a replica))|(?:growth L=\d+ R=\d+ .+?)): (.*)$`)
	valueForm  = regexp.MustCompile(`(store|remove|mean|p50|p99|median) (\d+(?:\.\d+)?)|(\d+(?:\.\d+)?) (bytes each)`)
	checksForm = regexp.MustCompile(`best=(\d+) total=(\d+)`)
)

// exact are the checksums of the Mooncake conversation trace.
var exact = map[string]string{
	"R=8": "best=2385856 total=5260832", "R=64": "best=3294112 total=28118816", "R=512": "best=3252992 total=168460032",
}

// compare prints medians over the rounds of a results file and the ratios of this index
// to the rival. Different checksums are an error.
func compare(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	values := map[string]map[string][]float64{} // measurement → subject → values
	checks := map[string]string{}
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		m := lineForm.FindStringSubmatch(sc.Text())
		if m == nil {
			return fmt.Errorf("%s: cannot read %q", path, sc.Text())
		}
		who, what := m[1], m[2]
		if c := checksForm.FindString(m[3]); c != "" {
			if checks[what] == "" {
				checks[what] = c
			}
			if checks[what] != c {
				return fmt.Errorf("%s %s: %s, others found %s", who, what, c, checks[what])
			}
		}
		if strings.HasSuffix(what, "replay") || strings.HasSuffix(what, "events") || strings.HasPrefix(what, "growth") {
			for _, v := range valueForm.FindAllStringSubmatch(m[3], -1) {
				name, text := v[1], v[2]
				if name == "" {
					name, text = v[4], v[3]
				}
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					return err
				}
				k := what + " " + name
				if values[k] == nil {
					values[k] = map[string][]float64{}
				}
				values[k][who] = append(values[k][who], n)
			}
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	printRatios(values)
	for what, c := range checks {
		verdict := "everybody agrees"
		if want := exact[strings.Fields(what)[0]]; want == c {
			verdict += ", and with the Mooncake conversation trace's"
		}
		fmt.Printf("%s %s: %s\n", what, c, verdict)
	}
	return nil
}

func printRatios(values map[string]map[string][]float64) {
	var names []string
	for k := range values {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		rival := median(values[k]["kv-index"])
		fmt.Printf("%-48s kv-index %10.1f", k, rival)
		var who []string
		for w := range values[k] {
			if w != "kv-index" {
				who = append(who, w)
			}
		}
		sort.Strings(who)
		for _, w := range who {
			v := median(values[k][w])
			fmt.Printf("  %s %10.1f", w, v)
			if rival > 0 {
				fmt.Printf(" (%.2fx)", v/rival)
			}
		}
		fmt.Println()
	}
}
