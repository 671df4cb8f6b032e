package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"warmroute/filter"
	"warmroute/internal/bearer"
	"warmroute/internal/bound"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/decision/why"
	"warmroute/render/openai"
)

// keptDecisions is how many of the last decisions are kept for the pages.
const keptDecisions = 1024

// lastDecisions is how many decisions /debug/explain shows for a query without a
// number.
const lastDecisions = 20

// explain answers GET /debug/explain?id=REQUEST_ID&reason=…&n=…: the newest
// recorded decisions that match, newest first, as {"decisions": [...]}, or 404 for an
// id of none, without n, which asks for a list; with the
// places where tokenizers were found and the features whose ids are not computed
// in process any more, if any: those of the one decision's model, or of all.
func explain(ring *decision.Ring, why func(*decision.Record), view func(of *decision.Record) tokenView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n := lastDecisions
		if s := q.Get("n"); s != "" {
			var err error
			if n, err = strconv.Atoi(s); err != nil || n < 1 {
				http.Error(w, fmt.Sprintf("n: %q is not a positive number", s), http.StatusBadRequest)
				return
			}
		}
		id, reason := decision.RequestID(q.Get("id")), decision.Reason(q.Get("reason"))
		if reason != "" && !slices.Contains(decision.Reasons(), reason) {
			http.Error(w, fmt.Sprintf("reason: %q is no reason code", reason), http.StatusBadRequest)
			return
		}
		found := ring.Last(n, func(rec *decision.Record) bool {
			return (id == "" || rec.ID == id) && (reason == "" || rec.Reason == reason)
		})
		if id != "" && len(found) == 0 && !q.Has("n") {
			http.Error(w, fmt.Sprintf("no kept decision has the id %.128q; the last %d decisions are kept", id, keptDecisions), http.StatusNotFound)
			return
		}
		for i := range found {
			why(&found[i])
		}
		var one *decision.Record
		if len(found) == 1 && (id != "" || n == 1) {
			one = &found[0]
		}
		answer(w, struct {
			Decisions []decision.Record `json:"decisions"`
			tokenView
		}{found, view(one)})
	})
}

// explainNow answers POST /debug/explain?path=ROUTE&tenant=T&subset=A,B with a
// request's body: the decision about such a request at this moment, as {"decision":
// …}. The request is not sent on and nothing is charged.
func explainNow(router *filter.Router, config func() Config, view func(of *decision.Record) tokenView) http.Handler {
	var reading bound.Pool
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !reading.Take(1, maxExplained) {
			http.Error(w, fmt.Sprintf("%d requests are being explained, which is the limit", maxExplained), http.StatusServiceUnavailable)
			return
		}
		defer reading.Give(1)
		query := r.URL.Query()
		path := cmp.Or(query.Get("path"), openai.Chat.String())
		route, ok := openai.RouteOf(http.MethodPost, path)
		if !ok {
			http.Error(w, fmt.Sprintf("path: %q is no route that carries a prompt", path), http.StatusBadRequest)
			return
		}
		c := config()
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(c.Filter.MaxBody)))
		if err != nil {
			http.Error(w, fmt.Sprintf("the body cannot be read or is larger than %d bytes", c.Filter.MaxBody), http.StatusRequestEntityTooLarge)
			return
		}
		q := &filter.Query{Route: route, Tenant: query.Get("tenant"), Body: body, MaySplit: c.PrefillDecode.Mode != filter.TransportOff}
		if s := query.Get("subset"); s != "" {
			q.Subset = strings.Split(s, ",")
		}
		rec := router.Explain(r.Context(), q)
		answer(w, struct {
			Decision decision.Record `json:"decision"`
			tokenView
		}{rec, view(&rec)})
	})
}

// maxExplained is the number of bodies that POST /debug/explain reads at a time:
// each may be as long as a request's.
const maxExplained = 4

// explainTimeout bounds a request to the router, which may itself have to request
// token ids from a replica.
const explainTimeout = 10 * time.Second

// explainOptions are the flags of `extproc explain`.
type explainOptions struct {
	config, admin, tokenFile, path, tenant, subset, id string
	last, asJSON                                       bool
}

func explainCommand(ctx context.Context, args []string, std stdio) error {
	var o explainOptions
	err := flags(std, "explain", args, func(fs *flag.FlagSet) {
		fs.StringVar(&o.config, "config", "", "the router's configuration `file`, for the address of its admin server and its token")
		fs.StringVar(&o.admin, "admin", "", "`address` of the router's admin server, instead")
		fs.StringVar(&o.tokenFile, "token-file", "", "`file` with the admin server's token, instead of admin.token_file of -config")
		fs.StringVar(&o.path, "path", openai.Chat.String(), "`route` of the body on standard input")
		fs.StringVar(&o.tenant, "tenant", "", "`tenant` the request is of")
		fs.StringVar(&o.subset, "subset", "", "comma list of the `addresses` that may be chosen")
		fs.StringVar(&o.id, "id", "", "explain the recorded decision of the request with this `x-request-id`, not a body; with -config, also by the policy in that file")
		fs.BoolVar(&o.last, "last", false, "explain the newest recorded decision")
		fs.BoolVar(&o.asJSON, "json", false, "print the record as JSON")
	})
	if err != nil {
		return err
	}
	c := defaultConfig()
	if o.config != "" {
		if c, err = loadConfig(o.config); err != nil {
			return err
		}
	}
	at := adminPage{base: "http://" + cmp.Or(o.admin, c.Admin.Listen)}
	if at.token, err = bearer.File(cmp.Or(o.tokenFile, c.Admin.TokenFile)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	rec, view, err := o.ask(ctx, at, std.In)
	var unreached *url.Error
	if errors.As(err, &unreached) && o.config == "" && o.admin == "" {
		return fmt.Errorf("%w; that is the default of admin.listen: name the router's file with -config, or its admin address with -admin", err)
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		e := json.NewEncoder(std.Out)
		e.SetIndent("", "  ")
		return e.Encode(rec)
	}
	if err := printRecord(std.Out, rec, view); err != nil || o.id == "" && !o.last || o.config == "" {
		return err
	}
	return o.printRescored(std.Out, rec, c.Policy)
}

// ask gets the record from the router, and the state of tokenizers.
func (o *explainOptions) ask(ctx context.Context, at adminPage, body io.Reader) (decision.Record, tokenView, error) {
	var answer struct {
		Decision  decision.Record
		Decisions []decision.Record
		tokenView
	}
	if o.id == "" && !o.last {
		query := url.Values{"path": {o.path}, "tenant": {o.tenant}, "subset": {o.subset}}
		err := at.fetch(ctx, http.MethodPost, "/debug/explain?"+query.Encode(), body, &answer)
		return answer.Decision, answer.tokenView, err
	}
	query := url.Values{"n": {"1"}}
	if o.id != "" {
		query = url.Values{"id": {o.id}} // with n it would be a list, which may be empty
	}
	if err := at.fetch(ctx, http.MethodGet, "/debug/explain?"+query.Encode(), nil, &answer); err != nil {
		return decision.Record{}, tokenView{}, err
	}
	if len(answer.Decisions) == 0 {
		return decision.Record{}, tokenView{}, errors.New("the router has made no decision yet")
	}
	return answer.Decisions[0], answer.tokenView, nil
}

// adminPage is a running router's admin server.
type adminPage struct {
	base  string        // its URL
	token *bearer.Token // nil: it needs none
}

// fetch reads the JSON of a page into to.
func (a adminPage) fetch(ctx context.Context, method, path string, body io.Reader, to any) error {
	resp, text, err := call(ctx, method, a.base+path, body, a.token)
	if err != nil {
		return fmt.Errorf("request to the router: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the router answered %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return json.Unmarshal(text, to)
}

// printRecord prints a decision for people: its input, then the candidates, best
// first.
func printRecord(w io.Writer, rec decision.Record, view tokenView) error {
	chosen, others, _ := strings.Cut(rec.Chosen, ",")
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("reason", "%s", rec.Reason)
	switch {
	case chosen == "":
		line("goes to", "no hint: Envoy chooses the replica")
	case rec.Withheld != "":
		line("goes to", "where Envoy chooses; the hint to %s was withheld (%s)", chosen, rec.Withheld)
	case others == "":
		line("goes to", "%s", chosen)
	default:
		line("goes to", "%s, then %s", chosen, strings.ReplaceAll(others, ",", ", "))
	}
	line("model", "%s, policy %s", cmp.Or(rec.Model, "not known"), cmp.Or(rec.Policy, "none"))
	if rec.Asked != "" {
		line("asked for", "%q", rec.Asked)
	}
	line("tokens", "%d from %s; prompts %d, blocks looked up %d", rec.Tokens, cmp.Or(rec.Source, "nowhere"), rec.Prompts, rec.Blocks)
	line("cached", "%d tokens predicted%s", rec.Predicted, knownFrom[rec.Match.Source()])
	if n := rec.Match.Below(); n > 0 {
		_, seconds := rec.Match.Loads()
		line("loaded", "%d tokens more, in %.3f s", n, seconds)
	}
	if a := rec.Answered; a != nil && rec.Split.Reason == decision.SplitDone {
		line("actual", "%d tokens of the prompt, as %s counted; %s computed them", a.ActualPrompt, a.Served, rec.Split.Prefill)
	} else if a != nil && a.ActualCached != nil {
		line("actual", "%d of %d tokens, as %s counted", *a.ActualCached, a.ActualPrompt, a.Served)
	} else if a != nil {
		line("actual", "the answer of %s has no cached tokens, but %d of the prompt", a.Served, a.ActualPrompt)
	}
	for _, found := range view.Tokenizers {
		switch {
		case found.Error != "":
			line("tokenizer", "of %s: none, %s", found.Model, found.Error)
		case found.Commit != "":
			line("tokenizer", "of %s: %s (%s, commit %s)", found.Model, found.Folder, found.From, found.Commit)
		default:
			line("tokenizer", "of %s: %s (%s)", found.Model, found.Folder, found.From)
		}
	}
	for _, d := range view.Demoted {
		line("demoted", "%s of %s: ids differed from vLLM's at token %d (%s)", d.Feature, d.Model, d.Position, d.At.UTC().Format(time.RFC3339))
	}
	line("took", "%s", rec.Took.Round(time.Microsecond))
	if rec.Why != nil {
		line("why", "%s", rec.Why.Text)
		line("to do", "%s", rec.Why.Do)
	}
	if len(rec.Candidates) == 0 {
		fmt.Fprintf(w, "There were no candidates to compare: the decision ended early with the reason %s.\n", rec.Reason)
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nreplica\trank\tevents\tmatched\treported\tlower tiers\tin flight\tawaiting\tprefill queued\tothers'\tspeed\tcost\tverdict\t")
	for _, c := range byRank(rec.Candidates, chosen) {
		s, events := c.State, "none"
		if c.Events {
			events = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\t%d\t%d\t%.3f s\t%.3f s\t%.2f\t%.4f\t%s\t\n", c.Replica, c.Rank, events, s.Match.Matched(), s.Match.Cached(), belowText(&s.Match),
			s.InFlight, s.Awaiting, s.Pending, s.Foreign, s.Speed, c.Score.Cost, c.Score.Verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printSplit(w, &rec); err != nil {
		return err
	}
	printEnds(w, rec, chosen)
	printGroups(w, rec)
	return nil
}

// knownFrom says how predicted tokens are known.
var knownFrom = map[policy.Source]string{
	policy.Reported: ", as reported", policy.History: ", from the history of token ids", policy.Text: ", from the history of texts",
}

// belowText says where tokens below the GPU lie, and how long all those in a place take to be
// loaded.
func belowText(m *policy.Match) string {
	var places []string
	for _, p := range policy.Lower {
		if n := m[p].Found(); n > 0 {
			places = append(places, fmt.Sprintf("%s %d (%.3f s)", p, n, m[p].Seconds()))
		}
	}
	return cmp.Or(strings.Join(places, ", "), "0")
}

// printEnds prints what ends each candidate's match, and what to do about each cause.
func printEnds(w io.Writer, rec decision.Record, chosen string) {
	var causes []why.Cause
	fmt.Fprintln(w)
	for _, c := range byRank(rec.Candidates, chosen) {
		if c.Why == nil {
			continue
		}
		fmt.Fprintf(w, "%s rank %d %s\n", c.Replica, c.Rank, c.Why.Text)
		if !slices.Contains(causes, c.Why.Cause) {
			causes = append(causes, c.Why.Cause)
		}
	}
	for _, c := range causes {
		fmt.Fprintf(w, "%s: %s\n", c, c.Do())
	}
}

// printGroups prints how much of the prompt each candidate's cache groups hold, and
// which of them cut the match, for caches with more than full attention.
func printGroups(w io.Writer, rec decision.Record) {
	for _, c := range rec.Candidates {
		g := c.Cache
		if g == nil || len(g.Specs) < 2 && g.Hit == g.FullOnly && g.Trust.Exact {
			continue
		}
		fmt.Fprintf(w, "\n%s rank %d: %s; hits %d tokens, %s", c.Replica, c.Rank, g.Geometry, g.Hit, g.Trust)
		if g.Trust.Why != "" {
			fmt.Fprintf(w, " (%s)", g.Trust.Why)
		}
		fmt.Fprintf(w, "; %s\n", g.Assumed)
		for _, s := range g.Specs {
			cut := ""
			if s.Cuts {
				cut = "  <- ends the match"
			}
			fmt.Fprintf(w, "  groups %v, %s: %d tokens%s\n", s.Groups, s.Kind, s.Alone, cut)
		}
	}
}

// byRank puts the winner first, then orders by verdict and cost.
func byRank(all []decision.CandidateRecord, chosen string) []decision.CandidateRecord {
	won := func(c decision.CandidateRecord) int {
		if c.Replica == chosen {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b decision.CandidateRecord) int {
		return cmp.Or(cmp.Compare(won(a), won(b)), cmp.Compare(a.Score.Verdict, b.Score.Verdict), cmp.Compare(a.Score.Cost, b.Score.Cost))
	})
}

// printRescored prints the decision of a configuration's policy on the recorded
// snapshot.
func (o *explainOptions) printRescored(w io.Writer, rec decision.Record, c policy.Config) error {
	if len(rec.Candidates) == 0 {
		return nil // the first decision is printed already
	}
	book, err := policy.NewBook(c)
	if err != nil {
		return err
	}
	_, winner := rec.Rescore(book.Of(rec.Model))
	chosen := rec.First()
	switch {
	case winner < 0:
		fmt.Fprintf(w, "\nby the policy of %s: no replica\n", o.config)
	case rec.Candidates[winner].Replica == chosen:
		fmt.Fprintf(w, "\nby the policy of %s: the same, %s\n", o.config, chosen)
	default:
		fmt.Fprintf(w, "\nby the policy of %s: %s instead\n", o.config, rec.Candidates[winner].Replica)
	}
	return nil
}

// printSplit prints what the prefill costs on the replica that answers, and on the best
// other one, and what a split took.
func printSplit(w io.Writer, rec *decision.Record) error {
	s := &rec.Split
	if s.Reason == "" {
		return nil
	}
	fmt.Fprintf(w, "\nprefill and decode: %s\n", s.Reason)
	if s.Decode == "" {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "prefill on\tcached\tqueue\tprefill\thandover\tdecoding\tfor later ones\tfor answers\tcost\t")
	row := func(replica string, cached int, p *policy.Price) {
		fmt.Fprintf(t, "%s\t%d\t%.3f s\t%.3f s\t%.3f s\t%.3f s\t%.3f\t%.3f\t%.4f\t\n", replica, cached, p.Queue, p.Prefill, p.Handover, p.Decoding, p.Later, p.Harm, p.Total)
	}
	row(s.Decode, s.Held, &s.Local)
	if s.Prefill != "" {
		row(s.Prefill, s.Predicted, &s.Remote)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if s.Reason == decision.SplitDone {
		fmt.Fprintf(w, "%s computes the prompt, %d tokens of its KV cache are moved to %s, which answers\n", s.Prefill, s.Moves, s.Decode)
	}
	printTimes(w, rec)
	return nil
}

// printTimes prints what was seen of a split after the decision.
func printTimes(w io.Writer, rec *decision.Record) {
	s := &rec.Split
	if t := s.Times; t != (decision.SplitTimes{}) {
		fmt.Fprintf(w, "decision %s", rec.Took.Round(time.Microsecond))
		for _, part := range []struct {
			name    string
			seconds float64
		}{{"prefill computed after", t.Computed}, {"answered after", t.Answered}, {"KV cache moved in", t.Moved}} {
			if part.seconds > 0 {
				fmt.Fprintf(w, ", %s %.3f s", part.name, part.seconds)
			}
		}
		if a := rec.Answered; a != nil && a.FirstByte > 0 && t.Answered > 0 {
			fmt.Fprintf(w, ", first byte of the answer %.3f s after the prefill's answer", max(0, a.FirstByte-rec.Took.Seconds()-t.Answered))
		}
		fmt.Fprintln(w)
	}
	if s.Hit != nil {
		fmt.Fprintf(w, "%s counted %d cached tokens, %d were predicted\n", s.Prefill, *s.Hit, s.Predicted)
	}
}
