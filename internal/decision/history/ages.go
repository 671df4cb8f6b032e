package history

const (
	// slots is the number of lengths of time that ages tells apart.
	slots = 64
	// leastSlot is the shortest of them: 2^20 ns, about 1 ms.
	leastSlot = 20
)

// ages counts tokens by when they were last used, in slots of 2^width ns. All slots with
// tokens are among slots in a row.
type ages struct {
	width  uint8
	first  int64 // slot; none before it has tokens
	tokens [slots]int
}

func (a *ages) of(seen int64) *int { return &a.tokens[(seen>>a.width)%slots] }

// reaches reports whether there is a slot for what is used now, after the empty ones of the
// oldest times have been left behind.
func (a *ages) reaches(now int64) bool {
	last := now >> a.width
	for range slots {
		if a.first >= last || a.tokens[a.first%slots] > 0 {
			break
		}
		a.first++
	}
	if a.tokens[a.first%slots] == 0 {
		a.first = last
	}
	return last-a.first < slots && (a.width == leastSlot || last-a.first >= slots/8)
}

// reset empties the slots, and makes them long enough for twice the time since then.
func (a *ages) reset(oldest, now int64) {
	*a = ages{width: leastSlot}
	for (now-oldest)>>a.width >= slots/2 {
		a.width++
	}
	a.first = oldest >> a.width
}

// idle returns the tokens that are expected never to be used again, if prompts are used again
// after such a time in ns: none of those used within it, and the older the more of the others.
func (a *ages) idle(now, again int64) (tokens float64) {
	last := now >> a.width
	for s := a.first; s < last; s++ {
		if n := a.tokens[s%slots]; n > 0 {
			used := min(1, float64(again)/(float64(last-s)*float64(int64(1)<<a.width)))
			tokens += float64(n) * (1 - used*used)
		}
	}
	return tokens
}
