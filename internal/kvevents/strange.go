package kvevents

import (
	"slices"
	"strings"
)

const (
	maxStrange     = 8  // names that are kept of one publisher
	maxStrangeName = 40 // bytes of each
)

// harmless reports whether a field that this package does not read says nothing about which
// blocks there are, or whose they are.
func harmless(name []byte) bool {
	switch string(name) {
	case "type", "ownership", "session_id":
		return true
	}
	return false
}

// media are the names that engines and connectors give to memories.
var media = []string{"", "GPU", "CPU", "CPU_PINNED", "STORAGE", "DISK", "SSD", "FS", "REMOTE", "EXTERNAL", "SHARED_STORAGE", "OBJECT_STORE"}

func knownMedium(name string) bool {
	return slices.ContainsFunc(media, func(m string) bool { return strings.EqualFold(m, name) })
}

// strange notes something that is not known: what it is, and its name from outside.
func (b *Batch) strange(what string, name []byte) {
	if len(b.Strange) >= maxStrange {
		return
	}
	text := what + clean(name)
	if !slices.Contains(b.Strange, text) {
		b.Strange = append(b.Strange, text)
	}
}

// clean makes a name from outside fit for a log and a page.
func clean(name []byte) string {
	out := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("_-.:", r) {
			return r
		}
		return '?'
	}, string(name[:min(len(name), maxStrangeName)]))
	if out == "" {
		return "(empty)"
	}
	return out
}

// doubts is what a publisher's events have had so far that is not known.
type doubts struct {
	names []string
	why   string // one sentence; "" if there was nothing
}

// add adds the names of a batch.
func (d *doubts) add(names []string) {
	for _, name := range names {
		if len(d.names) == maxStrange || slices.Contains(d.names, name) {
			continue
		}
		d.names = append(d.names, name)
		d.why = "its KV events have something that is not known here and may change what it holds: " + strings.Join(d.names, ", ")
	}
}
