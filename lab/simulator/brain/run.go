package brain

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"warmroute/lab/simulator"
)

// message is a line of the protocol, of any type.
type message struct {
	Type     string          `json:"type"`
	T        float64         `json:"t"`
	ID       int             `json:"id"`
	Replica  int             `json:"replica"`
	Input    int             `json:"input_tokens"`
	Blocks   []int64         `json:"blocks"`
	Replicas json.RawMessage `json:"replicas"` // init: their number; metrics: a page of each
	Routers  int             `json:"routers"`
	Block    int             `json:"block_tokens"`
	Capacity int             `json:"kv_capacity_tokens"`
	Split    bool            `json:"split"`   // init: prompts may be computed by other replicas than those that answer
	Prefill  int             `json:"prefill"` // init: so many of the first replicas only compute prompts
}

// page is a replica's metrics in a "metrics" message.
type page struct {
	simulator.Page
	Waiting float64 `json:"waiting"`
	Running float64 `json:"running"`
}

// Run answers the protocol's messages from in on out until in or ctx ends. o
// gives the policy; the first message, "init", gives the rest:
//
//	{"type":"init","replicas":8,"block_tokens":512,"kv_capacity_tokens":400000}
//	{"type":"stored"|"removed","t":s,"replica":r,"blocks":[ids]}
//	{"type":"metrics","t":s,"replicas":[{"waiting":n,"running":n,"kv_usage":u,
//	  "answers":n,"answer_tokens":n,"answer_seconds":s},...]}       simulator.Page
//	{"type":"route","t":s,"id":n,"input_tokens":n,"blocks":[ids]}       answered: {"replica":k}, -1 = no hint
//	{"type":"routed","t":s,"id":n,"replica":r}                          r really got the request
//	{"type":"first_token"|"done","t":s,"id":n}
//
// With "split":true in init, where "prefill":n replicas, the first ones, may only compute
// prompts for others, an answer can be {"replica":k,"prefill":p}: p computes the prompt,
// and then
//
//	{"type":"prefilled","t":s,"id":n}                                   p has done so
//
// Run ignores unknown fields and types. Errors name the line.
func Run(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<20), 1<<28)
	w := bufio.NewWriter(out)
	var b *Brain
	defer func() {
		if b != nil {
			b.Close()
		}
	}()
	for n := 1; lines.Scan() && ctx.Err() == nil; n++ {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if m.Type == "init" {
			var err error
			if b, err = begin(&m, b, o); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
			continue
		}
		if b == nil {
			return fmt.Errorf("line %d: the first message must be init, not %q", n, m.Type)
		}
		if err := b.take(&m, w); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return errors.Join(lines.Err(), w.Flush())
}

func begin(m *message, b *Brain, o Options) (*Brain, error) {
	if b != nil {
		return b, errors.New("a second init")
	}
	if err := json.Unmarshal(m.Replicas, &o.Replicas); err != nil {
		return nil, errors.New("replicas: must be a number")
	}
	if m.Routers > 1 {
		return nil, fmt.Errorf("routers: %d, this is one router", m.Routers)
	}
	o.Block, o.Split, o.Prefill, o.Capacity = m.Block, m.Split, m.Prefill, m.Capacity
	return New(o)
}

// take executes one message.
func (b *Brain) take(m *message, out *bufio.Writer) error {
	b.To(m.T)
	switch m.Type {
	case "stored":
		return b.Stored(m.Replica, m.Blocks)
	case "removed":
		return b.Removed(m.Replica, m.Blocks)
	case "routed":
		b.Routed(m.ID, m.Replica)
	case "first_token":
		b.First(m.ID)
	case "done":
		b.Done(m.ID)
	case "prefilled":
		b.Prefilled(m.ID)
	case "route":
		fmt.Fprintf(out, "{\"replica\":%d", b.Route(m.ID, m.Input, m.Blocks))
		if p := b.Prefill(m.ID); p >= 0 {
			fmt.Fprintf(out, ",\"prefill\":%d", p)
		}
		fmt.Fprintln(out, "}")
		return out.Flush()
	case "metrics":
		var pages []page
		if err := json.Unmarshal(m.Replicas, &pages); err != nil || len(pages) != len(b.replicas) {
			return fmt.Errorf("replicas: want the metrics of %d", len(b.replicas))
		}
		all := make([]simulator.Page, len(pages))
		for i, p := range pages {
			all[i] = p.Page
			all[i].Running, all[i].Waiting = int(p.Running), int(p.Waiting)
		}
		b.Scraped(all)
	}
	return nil
}
