package radix

import (
	"slices"
	"testing"

	"warmroute/index/internal/epoch"
	"warmroute/index/internal/hashtable"
	"warmroute/prefixhash"
)

// slowTrace is a trace whose runs are read long after its nodes. It keeps how few and how many
// blocks of the prompt each slot had meanwhile, -1 for a slot whose holder ended.
type slowTrace struct {
	reader      *epoch.Reader
	prompt      []int
	path        []Stretch
	least, most []int
}

// slowTrace starts a trace of any prompt.
func (g *grove) slowTrace() *slowTrace {
	s := &slowTrace{reader: g.clock.Enter()}
	var keys []prefixhash.Key
	s.prompt, keys = g.prompt()
	s.path = g.tree.Trace(nil, keys)
	for slot := range g.held {
		d := g.depth(slot, s.prompt)
		s.least, s.most = append(s.least, d), append(s.most, d)
	}
	g.follow(s)
	return s
}

// follow notes how many blocks of the prompt each slot has now.
func (g *grove) follow(s *slowTrace) {
	for slot := range g.held {
		if d := g.depth(slot, s.prompt); s.most[slot] >= 0 {
			s.least[slot], s.most[slot] = min(s.least[slot], d), max(s.most[slot], d)
		}
		if g.ended[slot] {
			s.least[slot], s.most[slot] = -1, -1
		}
	}
}

// end reads the runs of the trace's nodes, and compares them with the slots' blocks.
func (g *grove) end(s *slowTrace) {
	g.t.Helper()
	sets := setsOf(s.path)
	for slot := range g.held {
		if held := g.heldOf(sets, slot); s.most[slot] >= 0 && (held < s.least[slot] || held > s.most[slot]) {
			g.t.Fatalf("slot %d is said to have %d blocks, and had %d to %d", slot, held, s.least[slot], s.most[slot])
		}
	}
	s.reader.Leave()
}

// Whatever becomes of a trace's nodes before their runs are read, no slot gets more blocks than
// it had at some time of the lookup, nor fewer.
func TestSlowTracesAreOfTheirTime(t *testing.T) {
	for seed := range uint64(12) {
		g := newGrove(t, seed, 40+20*int(seed%4), 4, 3, 0, 0, 0)
		var slow []*slowTrace
		for range 1500 {
			g.step()
			for _, s := range slow {
				g.follow(s)
			}
			if slow = append(slow, g.slowTrace()); len(slow) > 6 {
				i := g.rng.IntN(len(slow))
				g.end(slow[i])
				slow = slices.Delete(slow, i, i+1)
			}
		}
		for _, s := range slow {
			g.end(s)
		}
	}
}

// A run's end does not rise where a lookup may take the run for one of earlier blocks: slot 1 has
// the first prompt's blocks up to 20, and then another's up to 30.
func TestRunsDoNotRiseOverOtherBlocks(t *testing.T) {
	f := newForest(t, 64, 2)
	keys, other := chain(0, 32), chain(1000, 4)
	p := f.begin(0, 0, keys)
	f.add(1, p, keys[:20])
	var prompt []prefixhash.Key
	for _, key := range keys {
		prompt = append(prompt, prefixhash.Key(key))
	}
	reader := f.clock.Enter()
	defer reader.Leave()
	path := f.tree.Trace(nil, prompt)
	f.leave(0, 1, 28)
	f.extend(0, p+28, other)
	f.add(1, p+20, slices.Concat(keys[20:28], other[:2]))
	if held := f.heldOf(setsOf(path), 1); held > 28 {
		t.Errorf("slot 1 is said to have %d blocks of a prompt, and never had more than 28", held)
	}
	if held := f.held[1].Held(1); held != 30 {
		t.Errorf("slot 1 has %d blocks of the node, want 30", held)
	}
}

// Slot 0 repeats a prompt's keys behind blocks of another prompt of slot 1, or behind made-up
// blocks. Wherever that is, the lookup finds the blocks that slot 1 has of the prompt.
func TestRepeatedKeysHideNoBlocks(t *testing.T) {
	asked, other, made := chain(0, 80), chain(1000, 80), chain(2000, 80)
	for name, c := range map[string]struct {
		nodes [][]uint64 // each behind the one before, of slot 0
		held  []int      // blocks of these nodes, of slot 1 too
		equal int        // of them, blocks of the prompt
		asked int
	}{
		"in a node":              {[][]uint64{slices.Concat(asked[:2], other[2:4], asked[4:40])}, []int{4}, 2, 40},
		"one block in it":        {[][]uint64{slices.Concat(asked[:2], made[2:3], asked[3:40])}, []int{2}, 2, 40},
		"within a search":        {[][]uint64{slices.Concat(asked[:2], other[2:21], asked[21:31], made[31:40])}, []int{21}, 2, 36},
		"behind a node":          {[][]uint64{slices.Concat(asked[:2], other[2:4]), asked[4:40]}, []int{4}, 2, 40},
		"one block behind":       {[][]uint64{asked[:2], slices.Concat(made[2:3], asked[3:40])}, []int{2}, 2, 40},
		"one block of a second":  {[][]uint64{asked[:2], slices.Concat(made[2:3], asked[3:6]), asked[6:40]}, []int{2}, 2, 40},
		"one block in a second":  {[][]uint64{asked[:2], slices.Concat(asked[2:4], made[4:5], asked[5:8]), asked[8:40]}, []int{2, 2}, 4, 40},
		"behind a second":        {[][]uint64{slices.Concat(asked[:2], other[2:4]), other[4:8], asked[8:40]}, []int{4, 4}, 2, 40},
		"the first of three":     {[][]uint64{made[:1], asked[1:3], asked[3:40]}, nil, 0, 40},
		"all but the first node": {[][]uint64{slices.Concat(made[:1], asked[1:40])}, nil, 0, 40},
	} {
		for _, every := range []int{4, 128} {
			f := newForest(t, every, 2)
			at, behind, depth := Place(0), Place(0), 0
			for i, keys := range c.nodes {
				p := f.begin(0, at, keys)
				if i < len(c.held) {
					f.add(1, p, keys[:c.held[i]])
				}
				if last := c.equal - 1 - depth; last >= 0 && last < len(keys) {
					behind = p + Place(last)
				}
				at, depth = p+Place(len(keys)-1), depth+len(keys)
			}
			behind = f.begin(1, behind, asked[c.equal:18])
			f.begin(1, behind+Place(17-c.equal), asked[18:20])
			var prompt []prefixhash.Key
			for _, key := range asked[:c.asked] {
				prompt = append(prompt, prefixhash.Key(key))
			}
			if err := f.check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if held := f.heldOf(f.traced(prompt), 1); held != 20 {
				t.Errorf("%s, checkpoints each %d: slot 1 is said to have %d blocks of the prompt, want 20", name, every, held)
			}
		}
	}
}

// A lookup may take another prompt's checkpoint for its own, once in some billions. Wherever that
// is, the lookup finds the blocks of its own prompt.
func TestCheckpointsOfOthersMisleadNobody(t *testing.T) {
	f := newForest(t, 4, 1)
	keys := chain(0, 60)
	first := f.begin(0, 0, keys[:10])
	second := f.begin(0, first+9, keys[10:30])
	f.begin(0, second+19, keys[30:60])
	parted := slices.Concat(keys[:12], chain(4000, 48)) // within the second node
	f.begin(0, second+1, parted[12:])
	long := f.begin(0, 0, chain(1000, 200))
	short := f.begin(0, 0, chain(2000, 8))
	behind := f.begin(0, short+7, chain(3000, 20))
	prompts := map[string][]prefixhash.Key{}
	for i, key := range keys {
		prompts["a prompt"] = append(prompts["a prompt"], prefixhash.Key(key))
		prompts["another"] = append(prompts["another"], prefixhash.Key(parted[i]))
	}
	for name, at := range map[string]Place{
		"far behind": long + 199, "in a node behind another": behind + 18, "a node's first": behind, "not there": short + 9, "behind the end": first + 12,
		"a block before": second + 3, "one behind": second + 6,
	} {
		for of, prompt := range prompts {
			for n := 0; n <= len(prompt); n++ {
				for point := 3; point < n; point += 4 {
					key := hashtable.KeyOf(uint64(prompt[point]))
					_, right := f.tree.checkpoints.View().Next(key, hashtable.Position{})
					f.tree.checkpoints.Delete(key, right)
					f.tree.checkpoints.Put(key, uint64(at))
					if got := len(f.traced(prompt[:n])); got != n {
						t.Errorf("%s: %d of %d blocks of %s are found where the checkpoint of block %d is another's", name, got, n, of, point)
					}
					f.tree.checkpoints.Delete(key, uint64(at))
					f.tree.checkpoints.Put(key, right)
				}
			}
		}
	}
}

// lastCheckpoint finds the last checkpoint that is there, however many are before it.
func TestTheLastCheckpointIsFound(t *testing.T) {
	for blocks := 1; blocks < 80; blocks++ {
		f := newForest(t, 2, 1)
		keys := chain(0, 80)
		f.begin(0, 0, keys[:1])
		f.begin(0, At(1, 0), keys[1:1+blocks])
		var prompt []prefixhash.Key
		for _, key := range keys {
			prompt = append(prompt, prefixhash.Key(key))
		}
		for lo := range (blocks + 1) / 2 {
			want := Place(0)
			if last := (blocks + 1) / 2 * 2; lo < last/2 {
				want = At(2, last-2)
			}
			if got := f.tree.lastCheckpoint(prompt, lo); got != want {
				t.Fatalf("of %d blocks, behind %d checkpoints: %x, want %x", 1+blocks, lo, got, want)
			}
		}
	}
}
