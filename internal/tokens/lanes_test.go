package tokens

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// Large bodies fill their lane, and refuse no small one.
func TestLanes(t *testing.T) {
	var l Lanes
	l.limit = 2
	first := l.enter(SmallBody + 1)
	if first == nil || l.enter(64<<20) == nil || l.enter(SmallBody+1) != nil {
		t.Fatal("not two large bodies at once")
	}
	for i := range 2 * smallPerLarge {
		if l.enter(SmallBody) == nil {
			t.Fatalf("the small body %d is refused", i)
		}
	}
	if l.enter(1) != nil {
		t.Error("no number of small bodies is too many")
	}
	if first.Give(1); l.enter(SmallBody+1) == nil {
		t.Error("a place that was left is not taken again")
	}
	var unset Lanes
	for range runtime.GOMAXPROCS(0) {
		if unset.enter(SmallBody+1) == nil {
			t.Error("fewer large bodies than cores")
		}
	}
	if unset.enter(SmallBody+1) != nil {
		t.Error("more large bodies than cores")
	}
}

// A full lane is an error at once: no replica is asked instead. A body of token ids needs
// no lane.
func TestAFullLaneIsBusy(t *testing.T) {
	var l Lanes
	l.limit = 1
	l.enter(SmallBody + 1)
	c := &Chooser{Local: NewLocal(LocalOptions{}), Lanes: &l}
	read := func(route openai.Route, body string) *openai.Request {
		return must.Get(openai.Parse(route, []byte(body)))(t)
	}
	large := strings.Repeat(" ", SmallBody)
	for _, tt := range []struct {
		route openai.Route
		body  string
		want  error
	}{
		{openai.Chat, `{"model":"m","messages":[]` + large + `}`, ErrBusy},
		{openai.Chat, `{"model":"m","messages":[]}`, ErrNone},
		{openai.Completions, `{"model":"m","prompt":[1,2]` + large + `}`, nil},
	} {
		if _, err := c.Tokens(context.Background(), read(tt.route, tt.body), Served{Model: "m"}); !errors.Is(err, tt.want) {
			t.Errorf("%d bytes: %v, want %v", len(tt.body), err, tt.want)
		}
	}
	if n := l.small.Used(); n != 0 {
		t.Errorf("%d places were not left", n)
	}
}
