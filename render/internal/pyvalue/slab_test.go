package pyvalue

import "testing"

// A part of a slab may outgrow its room without touching its neighbours.
func TestSlab(t *testing.T) {
	var s Slab
	const n = 3 * fullPiece
	var dicts []*Dict
	var lists []*List
	for i := range int64(n) {
		d, l := s.Dict(2), s.List(1)
		d.Set("a", i)
		l.Items[0] = i
		dicts, lists = append(dicts, d), append(lists, l)
	}
	for i, d := range dicts {
		for _, key := range []string{"b", "c", "d"} {
			d.Set(key, int64(-i))
		}
		lists[i].Items = append(lists[i].Items, "more")
	}
	for i, d := range dicts {
		a, _ := d.GetString("a")
		b, _ := d.GetString("b")
		if a != int64(i) || b != int64(-i) || d.Len() != 4 || len(lists[i].Items) != 2 || lists[i].Items[0] != int64(i) {
			t.Fatalf("value %d holds a=%v b=%v and %v", i, a, b, lists[i].Items)
		}
	}
	if l := s.List(fullPiece + 1); len(l.Items) != fullPiece+1 {
		t.Errorf("a list of %d items", len(l.Items))
	}
}
