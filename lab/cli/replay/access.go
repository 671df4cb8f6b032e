package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"warmroute/render/openai"
)

// access is a line of Envoy's access log, as `extproc envoy-config` configures it. Fields
// that Envoy has no value for are null or "-".
type access struct {
	Time      string          `json:"time"`
	Method    string          `json:"method"`
	Route     string          `json:"route"`
	Status    json.RawMessage `json:"status"`
	Tokens    json.RawMessage `json:"prompt_tokens"`
	Predicted json.RawMessage `json:"predicted_tokens"`
	Prompt    json.RawMessage `json:"actual_prompt_tokens"` // as the replica counted
	Cached    json.RawMessage `json:"actual_cached_tokens"` // as the replica counted
	Withheld  string          `json:"withheld"`
	Bytes     json.RawMessage `json:"bytes_received"`
}

// accessed sums an access log up.
type accessed struct {
	first, last time.Time
	requests    int // with a prompt, and answered
	tokens      float64
	counted     int     // requests whose tokens are counted, not estimated from their bytes
	cached      float64 // tokens of the requests whose cached tokens are known
	known       float64 // tokens of these requests
	knowing     int     // these requests
	reported    int     // of these, by the replica and not by prediction
}

// maxAccessLine bounds a line of an access log.
const maxAccessLine = 1 << 20

func readAccess(in []io.Reader, progress func(lines int)) (*accessed, error) {
	a := &accessed{}
	n := 0
	for _, from := range in {
		lines := bufio.NewScanner(from)
		lines.Buffer(make([]byte, 64<<10), maxAccessLine)
		for lines.Scan() {
			if n++; !bytes.HasPrefix(lines.Bytes(), []byte("{")) { // Envoy's own log may be in the same stream
				continue
			}
			if err := a.line(lines.Bytes()); err != nil {
				return nil, fmt.Errorf("access log: line %d: %w", n, err)
			}
			if n%100_000 == 0 {
				progress(n)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("access log: line %d: %w", n+1, err)
		}
	}
	if a.requests == 0 {
		return nil, errors.New("access log: no request with a prompt was answered")
	}
	return a, nil
}

func (a *accessed) line(text []byte) error {
	var e access
	if err := json.Unmarshal(text, &e); err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, e.Time)
	if err != nil {
		return fmt.Errorf("time %q: %w", e.Time, err)
	}
	_, ours := openai.RouteOf(e.Method, e.Route)
	if status := count(e.Status); !ours || status < 200 || status > 299 {
		return nil
	}
	if count(e.Prompt) > 0 {
		e.Tokens = e.Prompt
	}
	tokens := count(e.Tokens)
	if tokens > 0 {
		a.counted++
	} else if tokens = count(e.Bytes) / bytesPerToken; tokens <= 0 {
		return nil
	}
	if a.requests++; a.requests == 1 || at.Before(a.first) {
		a.first = at
	}
	if at.After(a.last) {
		a.last = at
	}
	a.tokens += tokens
	switch {
	case count(e.Tokens) <= 0:
	case known(e.Cached):
		a.reported++
		a.know(tokens, count(e.Cached))
	case known(e.Predicted) && (e.Withheld == "" || e.Withheld == "-"):
		a.know(tokens, count(e.Predicted))
	}
	return nil
}

func (a *accessed) know(tokens, cached float64) {
	a.knowing++
	a.known += tokens
	a.cached += max(0, min(cached, tokens))
}

// known reports whether Envoy wrote a number.
func known(v json.RawMessage) bool {
	_, ok := number(v)
	return ok
}

// count returns a number, 0 for none.
func count(v json.RawMessage) float64 {
	n, _ := number(v)
	return n
}

func number(v json.RawMessage) (float64, bool) {
	var n float64
	if len(v) == 0 || v[0] == 'n' || json.Unmarshal(bytes.Trim(v, `"`), &n) != nil {
		return 0, false
	}
	return n, n >= 0 && n < 1e12
}

// report writes what the log can say: it has no prompts, so nothing can be simulated.
func (a *accessed) report(out io.Writer, o Options) error {
	hw, _ := o.engine(0, pace{})
	seconds := max(1, a.last.Sub(a.first).Seconds())
	cost := o.cost(seconds)
	w := &lines{to: out}
	w.say("%d requests in %.0f s, from an access log: it has lengths and no prompts, so no policy can be simulated", a.requests, seconds)
	if left := a.requests - a.counted; left > 0 {
		w.say("the prompt tokens of %d of them are estimated, from their bytes: %d bytes a token", left, bytesPerToken)
	}
	w.say("a replica prefills %.0f tokens/s (the log does not show it: set -prefill-rate, also for a cost); %s", 1/hw.PrefillToken, o.terms())
	all := a.tokens * hw.PrefillToken
	w.say("%.0f prompt tokens: %s s of prefill if nothing is cached%s", a.tokens, short(all), cost.inMonth(all))
	if a.knowing == 0 {
		w.say("the cached tokens are not known (requests without warmroute): vLLM counts them in vllm:prefix_cache_hits_total and _queries_total")
		w.say("saved at most: all of it. Record a trace in shadow mode (filter.trace_file, filter.mode: shadow) to learn how much of it")
		return w.err
	}
	source := "by the router's predictions"
	switch {
	case a.reported == a.knowing:
		source = "as the replicas counted"
	case a.reported > 0:
		source = fmt.Sprintf("as the replicas counted for %d requests, for the others by the router's predictions", a.reported)
	}
	hit := a.cached / a.known
	left := all * (1 - hit)
	w.say("%.1f %% of them were cached, %s (%d requests): %s s of prefill were saved%s", 100*hit, source, a.knowing, short(all-left), cost.inMonth(all-left))
	w.say("left: %s s%s. Another policy saves at most that, and never all of it: a prompt's first prefill stays", short(left), cost.inMonth(left))
	return w.err
}
