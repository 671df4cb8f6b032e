package agents

import (
	"math"
	"math/rand/v2"

	"warmroute/lab/simulator"
)

// block is the tokens of a block of prompts: it divides what turns share, and is none of a text's units.
const block = 32

// spread is the time over which the places start, in s.
const spread = 900

// client has one session at a time, and one request of it.
type client struct {
	number  int
	at      float64 // of its next request, or when it gives up the present one; infinite: it waits
	turns   []Turn  // left of its session
	began   bool    // its session has
	begins  bool    // the present request begins it
	id      int     // of its session
	session uint64  // of its latest request, by the router's number
	blocks  []int32 // of its latest prompt
	tokens  int

	request *simulator.Request // nil: it thinks
	first   float64            // when it first asked
	held    bool               // the router holds the request
	answers int                // that count
}

// crowd are the clients, and the sessions that they take one after the other.
type crowd struct {
	all     [][]Turn
	rng     *rand.Rand
	order   []int
	begun   int     // sessions
	most    int     // of these; 0 = as many as there is time for
	head    []int32 // blocks with which sessions begin
	fresh   int32
	clients []*client
}

func newCrowd(all [][]Turn, n int, seed uint64, most int) *crowd {
	c := &crowd{all: all, rng: rand.New(rand.NewPCG(seed, 92)), most: most}
	c.order = c.rng.Perm(len(all))
	for _, s := range all {
		for int(c.fresh) < s[0].Same/block {
			c.head = append(c.head, c.fresh)
			c.fresh++
		}
	}
	for i := range n {
		c.clients = append(c.clients, &client{number: i, at: spread * c.rng.Float64()})
	}
	return c
}

// begin gives a client its next turn; false: there is no session left.
func (c *crowd) begin(k *client) bool {
	for len(k.turns) == 0 {
		if c.most > 0 && c.begun == c.most {
			return false
		}
		k.turns, k.blocks, k.began = c.all[c.order[c.begun%len(c.order)]], c.head, false
		c.begun++
		k.id = c.begun
	}
	return true
}

// ask returns a client's next request.
func (c *crowd) ask(k *client, id int) *simulator.Request {
	t := k.turns[0]
	k.turns, k.began, k.begins = k.turns[1:], true, !k.began
	blocks := append([]int32(nil), k.blocks[:min(len(k.blocks), t.Same/block)]...)
	for len(blocks) < t.Input/block {
		blocks = append(blocks, c.fresh)
		c.fresh++
	}
	k.blocks, k.tokens = blocks, t.Input
	return &simulator.Request{ID: id, Input: t.Input, Output: t.Output, Blocks: blocks, Session: k.id, Prefill: -1}
}

// answered is the time of the client's next request.
func (c *crowd) answered(k *client, now float64) {
	k.request = nil
	if len(k.turns) > 0 {
		k.at = now + k.turns[0].After
		return
	}
	k.at = now + 1
	if !c.begin(k) {
		k.at = math.Inf(1)
	}
}
