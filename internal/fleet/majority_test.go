package fleet

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/prefixhash"
)

// TestMostReplicasDecideWhatAModelIs: a replica that lists the model otherwise is named, and
// what most list holds, wherever its address is and whenever it joined. Where equally many
// differ, the one that joined first holds.
func TestMostReplicasDecideWhatAModelIs(t *testing.T) {
	usual := Model{ID: "m", Base: "m", Root: "/m"}
	adapter := Model{ID: "m", Base: "x", Root: "/x", LoRA: prefixhash.LoRA{Name: "m", Set: true}}
	first, root := Model{ID: "m", Base: "a", Root: "/m"}, Model{ID: "m", Base: "m", Root: "/elsewhere"}
	lora := func(path string) Model {
		return Model{ID: "m", Base: "b", LoRA: prefixhash.LoRA{Name: "m", Set: true, Path: path}}
	}
	for name, c := range map[string]struct {
		models []Model // by address
		joined string  // by address, a digit each
		want   Model
		root   string
		notes  string // the addresses that are named
	}{
		"one replica":                  {[]Model{adapter}, "1", adapter, "/x", ""},
		"all agree":                    {[]Model{usual, usual, usual}, "123", usual, "/m", ""},
		"an adapter":                   {[]Model{adapter, usual, usual}, "123", usual, "/m", "1"},
		"another first name":           {[]Model{first, usual, usual}, "123", usual, "/m", "1"},
		"another root":                 {[]Model{root, usual, usual}, "123", usual, "/m", "1"},
		"no root":                      {[]Model{{ID: "m", Base: "m"}, usual, usual}, "123", usual, "/m", ""},
		"a root each":                  {[]Model{root, usual, {ID: "m", Base: "m", Root: "/3"}}, "213", usual, "/m", ""},
		"two of one kind against five": {[]Model{first, adapter, first, usual, usual, usual, usual, usual}, "12345678", usual, "/m", "1 2 3"},
		"one against one":              {[]Model{adapter, usual}, "21", usual, "/m", "1"},
		"one against an older one":     {[]Model{adapter, usual}, "12", adapter, "/x", "2"},
		"paths of their own, one base": {[]Model{first, lora("/y"), lora("/z")}, "123", lora("/y"), "", "1"},
	} {
		var replicas []*Replica
		for i, m := range c.models {
			replicas = append(replicas, &Replica{Addr: fmt.Sprintf("10.0.0.%d:80", i+1), Ready: true, Joined: uint64(c.joined[i] - '0'), Reported: Reported{Models: []Model{m}}})
		}
		s := NewSnapshot(replicas...)
		got := s.Agreed("m", "")
		if kindOf(Candidate{Model: got}) != kindOf(Candidate{Model: &c.want}) {
			t.Errorf("%s: it is %+v, want %+v", name, *got, c.want)
		}
		if root := s.Roots()["m"]; c.want.Base == "m" && root != c.root {
			t.Errorf("%s: its root is %q, want %q", name, root, c.root)
		}
		var named []string
		for _, note := range s.Dissent() {
			named = append(named, strings.TrimPrefix(strings.TrimSuffix(strings.Fields(note)[1], ":80"), "10.0.0."))
		}
		if got := strings.Join(named, " "); got != c.notes {
			t.Errorf("%s: %q are named, want %q: %q", name, got, c.notes, s.Dissent())
		}
	}
	if s := NewSnapshot(); s.Agreed("m", "") != nil || s.Agreed("m", "t") != nil || s.Dissent() != nil {
		t.Error("nobody agrees on nothing")
	}
}

// TestDissentIsBounded: no fleet fills the page of notes.
func TestDissentIsBounded(t *testing.T) {
	var replicas []*Replica
	for i := range 200 {
		m := Model{ID: "m", Base: "m"}
		if i%4 == 0 {
			m.Base = fmt.Sprint(i)
		}
		replicas = append(replicas, &Replica{Addr: fmt.Sprintf("10.0.0.%d:80", i), Ready: true, Reported: Reported{Models: []Model{m}}})
	}
	if notes := NewSnapshot(replicas...).Dissent(); len(notes) != mostDissent+1 || !strings.HasPrefix(notes[mostDissent], "30 more") {
		t.Errorf("%d notes, the last is %q", len(notes), notes[len(notes)-1])
	}
}

// TestDissentIsStable: a replica that dissents about several models is named for the same one each time.
func TestDissentIsStable(t *testing.T) {
	var replicas []*Replica
	for i, root := range []string{"/usual", "/usual", "/other"} {
		r := &Replica{Addr: fmt.Sprintf("10.0.0.%d:80", i), Ready: true}
		for _, name := range []string{"a", "b", "c", "d"} {
			r.Models = append(r.Models, Model{ID: name, Base: name, Root: root})
		}
		replicas = append(replicas, r)
	}
	s := NewSnapshot(replicas...)
	for range 50 {
		if notes := s.Dissent(); len(notes) != 1 || !strings.Contains(notes[0], `"a"`) {
			t.Fatalf("%q", notes)
		}
	}
}
