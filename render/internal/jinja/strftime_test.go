package jinja

import (
	"testing"
	"time"
)

// TestStrftime has the output of CPython 3.12 on Linux.
func TestStrftime(t *testing.T) {
	at := time.Date(2026, 3, 5, 15, 4, 9, 7_000_000, time.UTC)
	for format, want := range map[string]string{
		"%a|%A|%b|%B|%c|%C|%d|%D|%e|%f|%F|%g|%G|%H|%I|%j|%k|%l|%m|%M|%p|%P|%r|%R|%S|%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%%": "Thu|Thursday|Mar|March|Thu Mar  5 15:04:09 2026|20|05|03/05/26| 5|007000|2026-03-05|26|2026|15|03|064|15| 3|03|04|PM|pm|" +
			"03:04:09 PM|15:04|09|15:04:09|4|09|10|4|09|03/05/26|15:04:09|26|2026|%",
		"%-d|%_d|%^a|%#p|%-j|%_H|%0e": "5| 5|THU|pm|64|15|05",
		"%z|%Z|%-z|a%zb|%":            "|||ab|%", // the time has no zone
	} {
		if got := strftime(format, at); got != want {
			t.Errorf("%s: %s, want %s", format, got, want)
		}
	}
}
