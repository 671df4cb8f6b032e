package index

import (
	"errors"
	"fmt"

	"warmroute/index/internal/hashtable"
	"warmroute/index/internal/holderset"
)

// check says what is wrong with an index that nobody is writing to.
func (x *Index) check() error {
	if x.closed.Load() {
		return nil
	}
	blocks := 0
	for _, d := range x.allDomains() {
		if err := d.check(); err != nil {
			return err
		}
		d.mu.Lock()
		blocks += d.blocks()
		d.mu.Unlock()
	}
	if n := int(x.blocks.Load()); n != blocks {
		return fmt.Errorf("%d blocks counted, %d are there", n, blocks)
	}
	return nil
}

// check says what is wrong with a domain: what the types' comments promise, and
// what is counted against what is there.
func (d *domain) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := checker{d: d, refs: map[holderset.ID]uint32{}, at: map[spaceKey]pos{}, held: make([]int, len(d.spaces)), stems: make([]int, len(d.spaces)), marks: make([]int, len(d.spaces)),
		kids: map[uint32]int{}, slots: make([]checkedSlot, len(d.info))}
	for i := range c.slots {
		c.slots[i] = checkedSlot{kids: map[uint64]uint64{}, beside: [tiers]map[spaceKey]bool{{}, {}, {}}}
	}
	steps := []func() error{c.allStems, c.allSpaces, c.allSets, c.allCopies, c.orphans}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	for slot := range d.info {
		if d.slots.Live.Has(slot) {
			if err := c.slot(slot); err != nil {
				return fmt.Errorf("slot %d: %w", slot, err)
			}
		}
	}
	return nil
}

// checker gathers what a domain's parts say of each other.
type checker struct {
	d     *domain
	refs  map[holderset.ID]uint32 // found
	at    map[spaceKey]pos        // blocks in stems
	held  []int                   // by space
	stems []int                   // by space
	marks []int                   // by space
	kids  map[uint32]int          // stems that name a stem their parent
	slots []checkedSlot
}

// checkedSlot is what stems and tables say of a slot.
type checkedSlot struct {
	inStems int
	kids    map[uint64]uint64
	beside  [tiers]map[spaceKey]bool // [TierGPU]: stranded
}

func (c *checker) allStems() error {
	for id := uint32(1); id <= c.d.stems.made; id++ {
		st := c.d.stems.at(id)
		if st.blocks() == 0 {
			if st.state.Load()&(stateLevels|holderset.MaxID<<stateSetShift) != 0 {
				return fmt.Errorf("stem %d has no blocks but holders", id)
			}
			continue
		}
		for _, look := range []func(uint32, *stem) error{c.array, c.levels, c.place, c.family} {
			if err := look(id, st); err != nil {
				return fmt.Errorf("stem %d of %d blocks: %w", id, st.blocks(), err)
			}
		}
	}
	for id, n := range c.kids {
		listed := 0
		for k := c.d.stems.at(id).child; k != 0; k = c.d.stems.at(k).next {
			listed++
		}
		if listed != n {
			return fmt.Errorf("stem %d lists %d stems behind it, %d there are", id, listed, n)
		}
	}
	return nil
}

// array: keys and the memory they are in.
func (c *checker) array(id uint32, st *stem) error {
	n := st.blocks()
	if n > int(st.seen) || st.seen > st.room || n > maxStem {
		return fmt.Errorf("%d seen of room for %d", st.seen, st.room)
	}
	if int(st.space) >= len(c.d.spaces) || c.d.spaces[st.space] == nil {
		return fmt.Errorf("space %d is not there", st.space)
	}
	c.stems[st.space]++
	c.held[st.space] += n
	for off, key := range st.all() {
		k := spaceKey{int(st.space), key}
		if other, twice := c.at[k]; twice || key == 0 {
			return fmt.Errorf("key %x at %d is also at %d of stem %d", key, off, other.off(), other.stem())
		}
		c.at[k] = posAt(id, off)
		if st.plain && st.name(off) != key {
			return fmt.Errorf("name %x of key %x though names are keys", st.name(off), key)
		}
	}
	return nil
}

// levels: they rise, and their sets shrink to no smaller than one holder, or to
// nobody where another stem follows.
func (c *checker) levels(id uint32, st *stem) error {
	s, n := st.state.Load(), st.blocks()
	if s&stateLevels != 0 && (len(st.words()) < 2 || stateSet(s) != 0) {
		return fmt.Errorf("state %x with levels %v", s, st.words())
	}
	levels, from := st.appendLevels(nil), 0
	for i, l := range levels {
		if l.end <= from || i == len(levels)-1 && l.end != n {
			return fmt.Errorf("levels %v do not rise to %d", levels, n)
		}
		if i > 0 && (l.set == levels[i-1].set || !c.covers(levels[i-1].set, l.set)) {
			return fmt.Errorf("levels %v do not shrink", levels)
		}
		if l.set == 0 && (i == 0 || i != len(levels)-1 || c.deepest(st) != n-1) {
			return fmt.Errorf("levels %v: nobody has blocks that no stem follows (deepest %d)", levels, c.deepest(st))
		}
		if l.set >= holderset.FirstInterned {
			c.refs[l.set]++
		}
		c.d.sets.Each(l.set, func(slot int) { c.slots[slot].inStems += l.end - from })
		from = l.end
	}
	return nil
}

// covers says whether a set has all of another.
func (c *checker) covers(all, some holderset.ID) bool {
	for i := range holderset.MaskWords {
		if c.d.sets.Word(some, i)&^c.d.sets.Word(all, i) != 0 {
			return false
		}
	}
	return true
}

func (c *checker) deepest(st *stem) int {
	deep := -1
	for id := st.child; id != 0; id = c.d.stems.at(id).next {
		deep = max(deep, c.d.stems.at(id).parent.off())
	}
	return deep
}

// place: what finds a stem.
func (c *checker) place(id uint32, st *stem) (err error) {
	sp := c.d.spaces[st.space]
	if got := c.d.stems.find(&sp.heads, st.key(0)); got != posAt(id, 0) {
		return fmt.Errorf("its first key leads to %x", got)
	}
	for off := range st.blocks() {
		if (int(st.depth)+off+1)%c.d.x.o.markEvery != 0 {
			continue
		}
		c.marks[st.space]++
		if got := c.d.stems.find(&sp.marks, st.key(off)); got != posAt(id, off) {
			err = fmt.Errorf("the mark of offset %d leads to %x", off, got)
		}
	}
	return err
}

// family: parents and children know each other.
func (c *checker) family(id uint32, st *stem) error {
	steps := uint32(0)
	for k, prev := st.child, uint32(0); k != 0; prev, k = k, c.d.stems.at(k).next {
		child := c.d.stems.at(k)
		if child.blocks() == 0 || child.parent.stem() != id || child.prev != prev {
			return fmt.Errorf("stem %d behind it has %d blocks, the parent %x, and %d before it in the list", k, child.blocks(), child.parent, child.prev)
		}
		if child.parent.off() > int(st.deep) {
			return fmt.Errorf("stem %d follows offset %d, the deepest is said to be %d", k, child.parent.off(), st.deep)
		}
		if steps++; steps > c.d.stems.made {
			return errors.New("the list of the stems behind it is a ring")
		}
	}
	if st.parent == 0 {
		if st.depth != 0 {
			return fmt.Errorf("it begins prompts at depth %d", st.depth)
		}
		return nil
	}
	p, off := c.d.stems.at(st.parent.stem()), st.parent.off()
	if off >= p.blocks() || p.space != st.space || int(st.depth) != int(p.depth)+off+1 {
		return fmt.Errorf("it is at depth %d behind offset %d of stem %d, which has %d blocks from %d", st.depth, off, st.parent.stem(), p.blocks(), p.depth)
	}
	c.kids[st.parent.stem()]++
	var err error
	c.d.sets.Each(st.appendLevels(nil)[0].set, func(slot int) {
		c.slots[slot].kids[uint64(st.parent)]++
		if c.d.slots.Live.Has(slot) && c.d.cutoff(p, slot) <= off {
			err = fmt.Errorf("slot %d has it, and %d blocks of stem %d, of which it follows offset %d", slot, c.d.cutoff(p, slot), st.parent.stem(), off)
		}
	})
	return err
}

func (c *checker) allSpaces() error {
	for i, sp := range c.d.spaces {
		if sp == nil {
			continue
		}
		if sp.held != c.held[i] || sp.heads.Len() != c.stems[i] || sp.marks.Len() != c.marks[i] {
			return fmt.Errorf("space %d counts %d blocks, %d heads and %d marks; there are %d, %d and %d", i, sp.held, sp.heads.Len(), sp.marks.Len(), c.held[i], c.stems[i], c.marks[i])
		}
		for _, t := range sp.flats() {
			if n := rowsWithSets(t); n != t.Len() {
				return fmt.Errorf("space %d: a table counts %d keys, there are %d", i, t.Len(), n)
			}
		}
		for tier, t := range []*hashtable.Table{sp.stranded.Load(), sp.lower[TierCPU].Load(), sp.lower[TierStorage].Load()} {
			if t == nil {
				continue
			}
			for s := range t.All() {
				set := s.Value().Set()
				if set >= holderset.FirstInterned {
					c.refs[set]++
				}
				c.d.sets.Each(set, func(slot int) { c.slots[slot].beside[tier][spaceKey{i, s.Key()}] = true })
			}
		}
	}
	return nil
}

func rowsWithSets(t *hashtable.Table) (n int) {
	for range t.All() {
		n++
	}
	return n
}

func (c *checker) allSets() error { return c.d.sets.Check(&c.d.slots, c.refs) }

func (c *checker) allCopies() error {
	for k, n := range c.d.copies {
		if slot := int(k.slot); c.d.slots.Live.Has(slot) {
			at := spaceKey{int(k.space), k.key}
			p := c.at[at]
			if n == 0 || !c.slots[slot].beside[k.tier][at] && (k.tier != TierGPU || p == 0 || c.d.cutoff(c.d.stems.at(p.stem()), slot) <= p.off()) {
				return fmt.Errorf("slot %d has %d more copies of %x in tier %d, which it lacks", slot, n, k.key, k.tier)
			}
		}
	}
	return nil
}

func (c *checker) orphans() error {
	n := 0
	for _, p := range c.d.orphans.queue {
		n += len(p.contents)
	}
	if n != c.d.orphans.blocks {
		return fmt.Errorf("%d orphans are parked, %d counted", n, c.d.orphans.blocks)
	}
	return nil
}

// slot: a live slot's names, one for each block it has, and its counts.
func (c *checker) slot(slot int) error {
	info, is := &c.d.info[slot], &c.slots[slot]
	if info.holder == nil {
		return errors.New("nobody's")
	}
	if want := is.inStems + len(info.stranded); info.blocks[TierGPU] != want {
		return fmt.Errorf("%d blocks on GPU counted, %d in stems and %d stranded", info.blocks[TierGPU], is.inStems, len(info.stranded))
	}
	if err := c.names(slot, info, is); err != nil {
		return err
	}
	kids := 0
	info.kids.Each(func(at, n uint64) bool {
		if kids++; is.kids[at] != n {
			kids = -1 << 30
		}
		return true
	})
	if kids != len(is.kids) || info.kids.Len() != len(is.kids) {
		return fmt.Errorf("%d places counted behind which it goes on, there are %d", info.kids.Len(), len(is.kids))
	}
	if err := c.stranded(info, is); err != nil {
		return err
	}
	for tier := TierCPU; tier < tiers; tier++ {
		if info.blocks[tier] != len(is.beside[tier]) {
			return fmt.Errorf("%d blocks counted in tier %d, there are %d", info.blocks[tier], tier, len(is.beside[tier]))
		}
		for k := range is.beside[tier] {
			named := false
			if l := info.lower[k.space]; l != nil {
				l.Each(func(_, key uint64) bool { named = named || key == k.key; return true })
			}
			if !named {
				return fmt.Errorf("block %x in tier %d has no name", k.key, tier)
			}
		}
	}
	return nil
}

func (c *checker) names(slot int, info *slotInfo, is *checkedSlot) (err error) {
	named := map[pos]bool{}
	look := func(name uint64, p pos) {
		st := c.d.stems.at(p.stem())
		switch {
		case p.off() >= c.d.cutoff(st, slot):
			err = fmt.Errorf("name %x is offset %d of stem %d, of which it has %d", name, p.off(), p.stem(), c.d.cutoff(st, slot))
		case named[p]:
			err = fmt.Errorf("two names of offset %d of stem %d", p.off(), p.stem())
		case info.find(&c.d.stems, name) != p:
			err = fmt.Errorf("name %x of offset %d of stem %d leads to %x", name, p.off(), p.stem(), info.find(&c.d.stems, name))
		}
		named[p] = true
	}
	info.eachName(&c.d.stems, look)
	if err == nil && (len(named) != is.inStems || info.lane.Len()+info.odd.Len() != len(named)) {
		err = fmt.Errorf("%d and %d names counted, %d there are, of %d blocks", info.lane.Len(), info.odd.Len(), len(named), is.inStems)
	}
	info.odd.Each(func(name, p uint64) bool {
		if st := c.d.stems.at(pos(p).stem()); st.name(pos(p).off()) == name {
			err = fmt.Errorf("name %x is the stem's, and kept as another", name)
		}
		return true
	})
	return err
}

func (c *checker) stranded(info *slotInfo, is *checkedSlot) error {
	behind := 0
	for k, hashes := range info.behind {
		for _, hash := range hashes {
			if b, ok := info.stranded[hash]; !ok || b.parent != k.key || b.space != k.space {
				return fmt.Errorf("%x waits for %x, but is not stranded behind it", hash, k.key)
			}
			behind++
		}
	}
	if behind != len(info.stranded) || len(is.beside[TierGPU]) != behind {
		return fmt.Errorf("%d stranded blocks, %d wait for a parent, %d in the table", len(info.stranded), behind, len(is.beside[TierGPU]))
	}
	for hash, b := range info.stranded {
		if !is.beside[TierGPU][spaceKey{b.space, b.key}] {
			return fmt.Errorf("%x is stranded, but not in the table", hash)
		}
	}
	return nil
}
