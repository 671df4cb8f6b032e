package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmroute/lab/cli/agents"
)

// heads are the blocks with which sessions may begin alike.
const heads = 256

// agentsTrace is the trace of sessions on one replica, of which so many are open at a time. An answer
// takes 5 s, of which the prefill takes a tenth of a millisecond for each token that the session's
// last prompt did not have. One in seven is held for 2.5 s of that. Prompts and caches are so many
// times smaller than real ones, and computed as much slower.
func agentsTrace(all [][]agents.Turn, open, small int) string {
	const block, took = 16, 5
	type asked struct {
		at     float64
		turn   agents.Turn
		blocks string
	}
	var lines []asked
	places, next := make([]float64, open), heads
	for _, s := range all {
		first := slices.Index(places, slices.Min(places))
		at, spans := places[first], []int{0, heads}
		for _, turn := range s {
			at += turn.After
			left, kept := turn.Same/block, []int(nil)
			for i := 0; i < len(spans) && left > 0; i += 2 {
				n := min(left, spans[i+1])
				kept, left = append(kept, spans[i], n), left-n
			}
			fresh := turn.Input/block - turn.Same/block
			spans = append(kept, next, fresh)
			next += fresh
			text := make([]string, len(spans))
			for i, n := range spans {
				text[i] = strconv.Itoa(n)
			}
			lines = append(lines, asked{at, turn, strings.Join(text, ",")})
			at += took
		}
		places[first] = at + 1
	}
	slices.SortStableFunc(lines, func(a, b asked) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, `{"trace":1,"run":"a","t":1}`+"\n"+`{"fleet":[{"replica":"r","model":"m","block":16,"blocks":%d,"ranks":1}]}`+"\n", 40_000/small+1)
	for i, q := range lines {
		fresh, waited, how := q.turn.Input-q.turn.Same, 0.0, ""
		if i%7 == 3 {
			waited, how = 2.5, `,"waited":2.500,"lacked":9,"behind":1`
		}
		fmt.Fprintf(&b, `{"n":%d,"t":%.6f,"route":"/v1/messages","model":"m","tokens":%d,"block":16,"blocks":[%s],"cached":0,"held":0,"reason":"cold","to":"r","withheld":"shadow"%s}`+"\n",
			i+1, 100+q.at+waited, q.turn.Input, q.blocks, how)
		fmt.Fprintf(&b, `{"end":%d,"t":%.6f,"status":200}`+"\n", i+1, 100+q.at+took)
		fmt.Fprintf(&b, `{"counted":%d,"prompt":%d,"cached":%d,"output":%d,"first_us":%d,"took_us":%d}`+"\n",
			i+1, q.turn.Input, q.turn.Same, q.turn.Output, fresh*small*100, took*1_000_000+fresh*small*200)
	}
	return b.String()
}

// TestSessionsOfATrace: a trace shows the sessions that were recorded, turn by turn.
func TestSessionsOfATrace(t *testing.T) {
	all := agents.Generate(40, 3)
	busy := 0.0 // s that all sessions take
	for i := range all {
		all[i][0].Same = heads * 16
		for k := range all[i] {
			all[i][k].After = math.Round(8*all[i][k].After) / 8 // as exact as a trace
			busy += all[i][k].After + 5
		}
	}
	r := readRecording(t, agentsTrace(all, 18, 1))
	if err := r.choose(""); err != nil {
		t.Fatal(err)
	}
	trace, a, err := r.trace(r.block, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := r.converse(trace, a)
	if want := busy / r.latest.Sub(r.all[0].At).Seconds(); len(c.all) != len(all) || math.Abs(c.open-want) > 0.01*want {
		t.Errorf("%d sessions, of which %.2f are open at a time, not %.2f", len(c.all), c.open, want)
	}
	want := map[string]bool{}
	say := func(s []agents.Turn) (out string) {
		for _, turn := range s {
			out += fmt.Sprintf("%d %d %d %.3f;", turn.Input, turn.Output, turn.Same/32, turn.After)
		}
		return out
	}
	for _, s := range all {
		want[say(s)] = true
	}
	for i, s := range c.all {
		if i == 0 {
			s[0].Same = heads * 16 // no prompt was before it
		}
		if !want[say(s)] {
			t.Errorf("no such session was recorded: %.200s", say(s))
		}
	}
}

// TestWhatHoldingWouldDo: a trace of more sessions than the cache has room for says that they are
// past the cliff, and what holding would complete; one of few says that they are not.
func TestWhatHoldingWouldDo(t *testing.T) {
	t.Parallel()
	const small = 4
	all := agents.Generate(60, 3)
	for i, s := range all { // so that most of the time as many are open as there are places
		all[i] = s[:min(len(s), 25)]
		for k := range all[i] {
			s[k].After, s[k].Input, s[k].Same = min(s[k].After, 60), s[k].Input/small, s[k].Same/small
		}
	}
	ask := func(trace string, o Options) string {
		t.Helper()
		var out bytes.Buffer
		if err := Run(t.Context(), []io.Reader{strings.NewReader(trace)}, &out, o); err != nil {
			return err.Error()
		}
		t.Log(out.String())
		return out.String()
	}
	verdict := regexp.MustCompile(`(?m)^(not past|past) the cliff at (\d+) sessions a replica: (\d+) % of the prompt tokens repeat, (\d+) % are found; holding would complete × (\d\.\d+)$`)
	for _, c := range []struct {
		open int
		want string
		gain float64
	}{{24, "past", 1.2}, {2, "not past", 0.98}} {
		m := verdict.FindStringSubmatch(ask(agentsTrace(all, c.open, small), Options{Hold: 0.1, Speedup: 1}))
		if m == nil {
			t.Fatal("no verdict")
		}
		if gain, err := strconv.ParseFloat(m[5], 64); err != nil || m[1] != c.want || gain < c.gain {
			t.Errorf("%d open: %q", c.open, m[0])
		}
	}
	trace := agentsTrace(all[:4], 2, small)
	for why, o := range map[string]Options{"set -capacity": {}, "set -prefill-rate": {}, "not from 0": {Hold: 1}} {
		text := trace
		switch why {
		case "set -capacity":
			text = strings.Replace(text, `"blocks":10001`, `"blocks":0`, 1)
		case "set -prefill-rate":
			text = regexp.MustCompile(`(?m)^{"counted.*\n`).ReplaceAllString(text, "")
		}
		o.Hold = cmp.Or(o.Hold, 0.1)
		if got := ask(text, o); !strings.Contains(got, why) {
			t.Errorf("%q, want %q", got, why)
		}
	}
	if got := ask(conversations(3), Options{Hold: 0.1}); !strings.Contains(got, "only the router's trace file") {
		t.Errorf("a log of bodies: %q", got)
	}
}
