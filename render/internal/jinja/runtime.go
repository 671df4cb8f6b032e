package jinja

import (
	"errors"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// state is the state of one render.
type state struct {
	out       []byte // the caller's buffer, then the output, captured output included
	vars      *dict  // the caller's variables
	now       func() time.Time
	work      *work.Budget
	unpaid    int // uncharged steps
	depth     int // Python frames
	line      int
	limits    Limits
	names     []string   // the names that the template looks up
	resolved  []resolved // by names
	frames    map[*function][]*frame
	outputMax int
	own       work.Budget // the budget of a render without one
	guard     bool        // Options.GuardNamespace
	arena
}

// resolved is the value of a name; known: the name has been looked up.
type resolved struct {
	value any
	known bool
}

// resolve returns the value of the template's i-th name. Scopes call it whenever they
// are entered.
func (st *state) resolve(i int) any {
	r := &st.resolved[i]
	if !r.known {
		*r = resolved{st.lookUp(st.names[i]), true}
	}
	return r.value
}

// lookUp returns the value of a name: the caller's variable, or else a global.
func (st *state) lookUp(name string) any {
	if v, ok := st.vars.GetString(name); ok {
		return v
	}
	if g, ok := globals[name]; ok {
		return g
	}
	return missing
}

func newFrame(fn *function, up *frame) *frame {
	f := &frame{vars: make([]any, len(fn.slots)), up: up}
	for i := range f.vars {
		f.vars[i] = missing
	}
	return f
}

// newFrame returns a frame, reused if no value can hold on to fn's frames.
func (st *state) newFrame(fn *function, up *frame) *frame {
	if free := st.frames[fn]; len(free) > 0 {
		f := free[len(free)-1]
		st.frames[fn] = free[:len(free)-1]
		f.up = up
		return f
	}
	return newFrame(fn, up)
}

func (st *state) freeFrame(fn *function, f *frame) {
	if fn.inner {
		return
	}
	for i := range f.vars {
		f.vars[i] = missing
	}
	f.up = nil
	if st.frames == nil {
		st.frames = map[*function][]*frame{}
	}
	st.frames[fn] = append(st.frames[fn], f)
}

// at sets the line of errors and counts a step.
func (st *state) at(line int) {
	st.line = line
	st.step()
}

// stepCost and stepBytes are the least cost of a statement, an iteration, a call or a
// filter, without the work on its values.
const (
	stepCost  = 8
	stepBytes = 64
)

// stepsCharged is the number of steps between two charges.
const stepsCharged = 16

func (st *state) step() {
	if st.unpaid++; st.unpaid == stepsCharged {
		st.pay()
	}
}

// pay charges the uncharged steps.
func (st *state) pay() {
	n := st.unpaid
	st.unpaid = 0
	st.work.Step(n * stepCost)
	st.work.Memory(n * stepBytes)
}

// charge charges for a value of n bytes, before it is built.
func (st *state) charge(n int) {
	if n > st.limits.Output {
		fail(ErrLimit, "a value of more than %d bytes", st.limits.Output)
	}
	st.work.Make(n)
}

// walk charges for looking at each character of n bytes.
func (st *state) walk(n int) { st.work.Step(n / 4) }

// scan charges for searching n bytes, or counting their characters.
func (st *state) scan(n int) { st.work.Step(n / 16) }

func (st *state) enterCall(frames int) {
	if st.depth += frames; st.depth > st.limits.Depth {
		fail(ErrLimit, "maximum recursion depth exceeded")
	}
	st.step()
}

func (st *state) leaveCall(frames int) { st.depth -= frames }

func (st *state) write(s string) {
	st.work.Read(len(s))
	before := cap(st.out)
	st.out = append(st.out, s...)
	work.Grown(st.work, before, st.out)
	if len(st.out) > st.outputMax {
		st.outOfOutput()
	}
}

func (st *state) outOfOutput() {
	fail(ErrLimit, "more than %d bytes of output", st.limits.Output)
}

// writeValue writes str(v).
func (st *state) writeValue(v any) {
	if s, ok := pyvalue.Text(v); ok {
		st.write(s)
		return
	}
	var err error
	st.out, err = pyvalue.AppendStr(st.work, st.out, v)
	st.check(err)
	st.write("")
}

// writeCall calls fn and writes str() of its result. Macros and loops write their
// output themselves.
func (st *state) writeCall(fn any, a *args) {
	switch fn := fn.(type) {
	case *macro:
		fn.call(st, a)
	case *loopContext:
		fn.call(st, a)
	default:
		st.writeValue(st.call(fn, a))
	}
}

// check turns an error of pyvalue into an error of this package.
func (st *state) check(err error) {
	switch {
	case err == nil:
	case errors.Is(err, pyvalue.ErrAddress):
		refuse("memory address")
	case errors.Is(err, pyvalue.ErrDepth):
		fail(ErrLimit, "maximum recursion depth exceeded")
	default:
		fail(ErrRuntime, "%s", err)
	}
}

// str returns str(v).
func (st *state) str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	s, err := pyvalue.Str(st.work, v)
	st.check(err)
	return s
}

func (st *state) repr(v any) string {
	s, err := pyvalue.Repr(st.work, v)
	st.check(err)
	return s
}

func (st *state) equal(a, b any) bool {
	eq, err := pyvalue.Equal(st.work, a, b)
	st.check(err)
	return eq
}

// less returns a < b; an undefined operand fails with its own error.
func (st *state) less(a, b any) bool {
	defined(a)
	defined(b)
	lt, err := pyvalue.Less(st.work, a, b)
	st.check(err)
	return lt
}

// setAttr sets an attribute of a namespace; boxed is its name.
func (st *state) setAttr(n *namespace, name string, boxed, v any) {
	if st.guard {
		st.guardName(name)
	}
	n.attrs.Set(boxed, v)
}

func (st *state) guardName(name string) {
	if strings.HasPrefix(name, "_") {
		fail(ErrSecurity, "Chat templates cannot store underscore-prefixed attributes on a namespace")
	}
}

// entryBytes is the memory of an entry of a dict.
const entryBytes = 128

// setItem does d[k] = v on a dict that is being built.
func (st *state) setItem(d *dict, k, v any) {
	st.hashable(k)
	st.work.Step(2 * stepCost)
	st.work.Memory(entryBytes)
	d.Set(k, v)
}

// bytesString returns b as a string without a copy; b must not change any more.
func bytesString(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// call calls a value as the sandbox does.
func (st *state) call(fn any, a *args) any {
	switch fn := fn.(type) {
	case *builtin:
		st.step()
		return fn.fn(st, a)
	case *macro:
		s, _ := st.capture(func() jump { fn.call(st, a); return jumpNone })
		return s
	case *loopContext:
		s, _ := st.capture(func() jump { fn.call(st, a); return jumpNone })
		return s
	case *undefined:
		fn.fail()
	}
	typeError("'%s' object is not callable", pyvalue.TypeName(fn))
	return nil
}

func callable(v any) bool {
	switch v.(type) {
	case *builtin, *macro, *loopContext, *undefined:
		return true // Undefined has a __call__, which fails
	}
	return false
}

// iterator yields values until ok is false, from pull if it is set, else from items.
// The items of a list, over which most loops run, need no further memory.
type iterator struct {
	items []any
	pull  func() (v any, ok bool)
}

func (it *iterator) next() (v any, ok bool) {
	if it.pull != nil {
		return it.pull()
	}
	if len(it.items) == 0 {
		return nil, false
	}
	v, it.items = it.items[0], it.items[1:]
	return v, true
}

func indexIterator(n int, at func(int) any) iterator {
	i := 0
	return iterator{pull: func() (any, bool) {
		if i >= n {
			return nil, false
		}
		i++
		return at(i - 1), true
	}}
}

// iterable reports whether iter(v) works. It makes no iterator for the types of
// requests' values.
func (st *state) iterable(v any) bool {
	switch v.(type) {
	case *list, *tuple, *dict, string:
		return true
	}
	_, ok := st.iterateOK(v)
	return ok
}

// iterateOK returns iter(v); false: v is not iterable.
func (st *state) iterateOK(v any) (iterator, bool) {
	switch v := v.(type) {
	case *list:
		return iterator{items: v.Items}, true
	case *tuple:
		return iterator{items: v.Items}, true
	case *dict:
		return indexIterator(v.Len(), func(i int) any { k, _ := v.At(i); return k }), true
	case string:
		return runeIterator(v), true
	case markup:
		return runeIterator(string(v)), true
	case *rangeVal:
		return indexIterator(v.len(), v.at), true
	case *dictView:
		return indexIterator(v.d.Len(), v.at), true
	case bytesVal:
		return indexIterator(len(v), func(i int) any { return int64(v[i]) }), true
	case *generator:
		return iterator{pull: v.next}, true
	case *undefined:
		return iterator{}, true
	case *loopContext:
		return iterator{pull: func() (any, bool) {
			x, ok := v.next()
			return pyvalue.NewTuple(x, v), ok
		}}, true
	}
	return iterator{}, false
}

func runeIterator(s string) iterator {
	return iterator{pull: func() (any, bool) {
		if s == "" {
			return nil, false
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return c, true
	}}
}

func (st *state) iterate(v any) iterator {
	it, ok := st.iterateOK(v)
	if !ok {
		typeError("'%s' object is not iterable", pyvalue.TypeName(v))
	}
	return it
}

// items returns list(v); callers must not change it.
func (st *state) items(v any) []any {
	switch v := v.(type) {
	case *list:
		return v.Items
	case *tuple:
		return v.Items
	}
	var out []any
	for it := st.iterate(v); ; {
		x, ok := it.next()
		if !ok {
			return out
		}
		st.step()
		out = append(out, x)
	}
}

// length returns len(v); false: v has none.
func (st *state) length(v any) (int, bool) {
	if s, ok := pyvalue.Text(v); ok {
		st.scan(len(s))
	}
	switch v := v.(type) {
	case string:
		return pyvalue.Len(v), true
	case *list:
		return len(v.Items), true
	case *dict:
		return v.Len(), true
	case *tuple:
		return len(v.Items), true
	case markup:
		return pyvalue.Len(string(v)), true
	case *rangeVal:
		return v.len(), true
	case *dictView:
		return v.d.Len(), true
	case bytesVal:
		return len(v), true
	case *undefined:
		return 0, true
	case *loopContext:
		return v.len(), true
	}
	return 0, false
}
