package decision

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestEveryReasonIsDocumented: docs/routing.md has every reason and no others, those with a
// hint first: each in a row that ends with what to do, or in the list for which the client
// must be fixed.
func TestEveryReasonIsDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/routing.md"))(t)
	var rows []Reason
	do := map[Reason]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| .+ \\| (.+) \\|$").FindAllSubmatch(page, -1) {
		rows = append(rows, Reason(m[1]))
		do[Reason(m[1])] = string(m[2])
	}
	_, list, _ := bytes.Cut(page, []byte("fix the client.\n\n"))
	list, _, _ = bytes.Cut(list, []byte("\n\n"))
	clients := len(rows) // where the list begins
	for _, names := range regexp.MustCompile("(?m)^- ((?:`[a-z0-9_]+`(?:, )?)+): .").FindAllSubmatch(list, -1) {
		for _, name := range regexp.MustCompile("[a-z0-9_]+").FindAll(names[1], -1) {
			rows = append(rows, Reason(name))
		}
	}
	if clients == 0 || clients == len(rows) {
		t.Fatal("no table or no list of reasons")
	}
	for _, r := range Reasons() {
		if !slices.Contains(rows, r) {
			t.Errorf("%s is not documented", r)
		}
		if listed := slices.Contains(rows[clients:], r); r.Do() == "" || !listed && do[r] != r.Do() || listed != strings.HasPrefix(r.Do(), "Fix the client") {
			t.Errorf("%s: the page says to do %q, the router says %q", r, do[r], r.Do())
		}
	}
	for _, r := range openai.Reasons {
		if !slices.Contains(Reasons(), Reason(r)) {
			t.Errorf("%s has no class and nothing to do", r)
		}
	}
	for i, r := range rows {
		if !slices.Contains(Reasons(), r) || slices.Index(rows, r) != i {
			t.Errorf("%s is no reason, or documented twice", r)
		}
		if i > 0 && r.Hint() && !rows[i-1].Hint() {
			t.Errorf("%s names replicas but stands among those that do not", r)
		}
	}
}

// TestEverySplitReasonIsDocumented: docs/prefill-decode.md has a row for every reason.
func TestEverySplitReasonIsDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/prefill-decode.md"))(t)
	for _, r := range SplitReasons() {
		if !regexp.MustCompile("(?m)^\\|.*`" + string(r) + "`[^|]*\\| .+ \\|$").Match(page) {
			t.Errorf("%s is not documented", r)
		}
	}
}

// TestEveryClassIsDocumented: the table of classes in docs/routing.md has each class with its
// reasons.
func TestEveryClassIsDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/routing.md"))(t)
	var classes []Class
	named := map[Reason]Class{}
	_, table, _ := bytes.Cut(page, []byte("| class | decisions |"))
	table, _, _ = bytes.Cut(table, []byte("\n\n"))
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (.+) \\|$").FindAllSubmatch(table, -1) {
		classes = append(classes, Class(row[1]))
		for _, r := range regexp.MustCompile("`([a-z_]+)`").FindAllSubmatch(row[2], -1) {
			named[Reason(r[1])] = Class(row[1])
		}
	}
	if !slices.Equal(classes, Classes[:]) {
		t.Errorf("the page has %q", classes)
	}
	for _, r := range Reasons() {
		want, ok := named[r]
		if !ok {
			want = ClassFailed
		}
		if r.Class() != want || r.Hint() != slices.Contains([]Class{ClassWarm, ClassMoved, ClassCold}, want) {
			t.Errorf("%s is %s, the page says %s", r, r.Class(), want)
		}
	}
	if c := (&Record{Reason: ReasonWarm, Choice: Choice{Withheld: WithheldShare}}).Class(); c != ClassWithheld {
		t.Errorf("a withheld hint is %s", c)
	}
}
