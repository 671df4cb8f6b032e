package hybrid

import "testing"

// runOf returns the event by which a cache with a window announces all blocks of a prompt's
// beginning.
func runOf(end int) []Event {
	hashes := hashesOf(16, to(16, end)...)
	window, full := windowEvent.with(hashes), fullEvent.with(hashes)
	window.Tokens, full.Tokens = end, end
	return []Event{window, full}
}

// TestRuns: which first events list all blocks of a prompt's beginning in groups that ascend.
func TestRuns(t *testing.T) {
	change := func(i int, f func(e *Event)) []Event {
		events := append(runOf(32), seen(2, 16, "mamba", 0))
		events[2].Hashes, events[2].Tokens = events[0].Hashes, 32
		f(&events[i])
		return events
	}
	for name, c := range map[string]struct {
		events []Event
		n      int
		groups uint32
	}{
		"all":                {change(0, func(*Event) {}), 3, 7},
		"behind a block":     {change(1, func(e *Event) { e.HasParent = true }), 1, 1},
		"another prompt":     {change(1, func(e *Event) { e.Tokens = 48 }), 1, 1},
		"blocks are missing": {change(2, func(e *Event) { e.Hashes = e.Hashes[1:] }), 2, 3},
		"a group again":      {change(1, func(e *Event) { e.Group = 0 }), 1, 1},
		"a group before":     {change(2, func(e *Event) { e.Group = 0 }), 2, 3},
		"no group":           {change(2, func(e *Event) { e.Group = 32 }), 2, 3},
		"another event":      {change(0, func(e *Event) { *e = Event{} }), 0, 0},
	} {
		first, groups := opening(c.events)
		if len(first) != c.n || groups != c.groups {
			t.Errorf("%s: %d events of groups %b", name, len(first), groups)
		}
	}
}

// TestRepeats: events that repeat a hit are a report, but events whose prompt may have ended with
// it may be a copy, until the member has been seen to report.
func TestRepeats(t *testing.T) {
	m, _ := newMember(newTestModel(), 1, known)
	apply(m, Keying{}, windowEvent, fullEvent)
	store := func(what string, end, want int) {
		t.Helper()
		events := runOf(end)
		n := m.Repeats(events)
		equal(t, what, n, want)
		for i := n; i < len(events); i++ {
			m.Stored(&events[i])
		}
	}
	remove := func(end int) {
		for group := range 2 {
			hashes := hashesOf(16, to(16, end)...)
			m.Removed(group, hashes)
			m.Review(group, hashes)
		}
	}
	held := func(what string, end int, want bool) {
		t.Helper()
		equal(t, what, m.held.has(groupHash{0, hashesOf(16, end)[0]}), want)
	}
	exact := func(what string, want bool) {
		t.Helper()
		trust, _ := m.Trust()
		equal(t, what, trust.Exact, want)
	}
	store("the first time", 16, 0)
	store("a prompt of one block again", 16, 0)
	remove(16)
	held("one copy remains", 16, true)
	remove(16)
	held("none remains", 16, false)
	equal(t, "open copies", len(m.reports.open), 0)

	store("two blocks", 32, 0)
	store("one block of them", 16, 0)
	equal(t, "open copies", len(m.reports.open), 2)
	exact("before a report", true)
	store("a report", 32, 2)
	exact("copies remain", true)
	remove(32)
	held("the open copy was taken back", 16, false)
	exact("it may remain", false)
	equal(t, "may remain", len(m.reports.maybe), 4)
	equal(t, "a prompt without it", m.concerns(m.plan.Load(), nil), true) // its key is not known
	store("what may remain is stored again", 32, 0)
	exact("it remains for certain", true)
	store("once more, which may be a report", 16, 2)
	remove(32)
	exact("the last counted copy is gone", false)
	block := groupHash{0, hashesOf(16, 16)[0]}
	for n := m.reports.open[block]; n > 0; n-- { // each removal may be of an open copy
		equal(t, "open copies", m.reports.open[block], n)
		remove(16)
	}
	equal(t, "may remain, when all are gone", m.reports.maybe[block], false)
	m.Clear(false)
	exact("cleared", true)
	equal(t, "still known to report", m.reports.seen, true)

	m.Configure(&Settings{EagleKnown: true, Reports: true})
	store("stored", 32, 0)
	store("a report, as the settings say", 32, 2)
	equal(t, "no copy is open", len(m.reports.open), 0)
}

// TestRepeatsPlain: the same of full attention alone, whose blocks are in the nodes.
func TestRepeatsPlain(t *testing.T) {
	m, h := newMember(newTestModel(), 1, known)
	event := func(end int) Event {
		e := fullEvent.in(0).with(hashesOf(16, to(16, end)...))
		e.Contents = contents(end / 16)
		e.Tokens = end
		return e
	}
	e := event(16)
	apply(m, Keying{}, e)
	store := func(what string, end, want int) {
		t.Helper()
		e := event(end)
		n := m.Repeats([]Event{e, e})
		equal(t, what, n, want)
		for _, hash := range e.Hashes[:len(e.Hashes)*(1-n)] {
			h.blocks[groupHash{0, hash}]++
		}
	}
	store("the first time", 16, 0)
	store("again", 16, 0)
	store("longer", 48, 0)
	equal(t, "copies", h.blocks[groupHash{0, hashesOf(16, 16)[0]}], 3)
	behind := event(48)
	behind.HasParent = true
	equal(t, "behind a block", m.Repeats([]Event{behind}), 0)
	hashed := event(48)
	hashed.Contents = nil
	equal(t, "without contents", m.Repeats([]Event{hashed}), 0)
	none := event(48)
	none.Hashes = nil
	equal(t, "without blocks", m.Repeats([]Event{none}), 0)
	store("a report", 48, 1)
	equal(t, "an open copy was taken back", h.blocks[groupHash{0, hashesOf(16, 16)[0]}], 2)
	equal(t, "nothing may remain", m.reports.doubt(), false)
	h.blocks[groupHash{0, hashesOf(16, 16)[0]}] = 0
	m.Review(0, hashesOf(16, 16))
	equal(t, "the last counted copy is gone", m.reports.doubt() && m.concerns(m.plan.Load(), nil), true)
	m.Stored(&e)
	equal(t, "it is stored again", m.reports.doubt(), false)
}
