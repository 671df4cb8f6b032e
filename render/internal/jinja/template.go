package jinja

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// Limits bound one render. Zero fields take the defaults.
type Limits struct {
	// Depth bounds nested calls, in Python frames: a macro call is five. CPython stops
	// at 1000 less the frames of the server's own stack.
	Depth int
	// Output bounds the output, and any single value, in bytes.
	Output int
}

// These are the defaults of Limits. DefaultDepth is CPython's limit less the frames of a
// small caller; no prompt is near 64 MiB.
const (
	DefaultDepth  = 970
	DefaultOutput = 64 << 20
)

// unbudgeted limits a render without a budget: about half a second, a thousand times
// more than the templates in use need for 200 messages.
var unbudgeted = work.Limits{Steps: 50_000_000, Memory: 1 << 30}

// MaxTemplate bounds the size of a template, in bytes: ten times the largest known.
const MaxTemplate = 1 << 20

// Options are the options of Compile.
type Options struct {
	Limits Limits
	// GuardNamespace refuses namespace attributes that start with an underscore
	// (SecurityError), as transformers does from 5.23 on (5.19 does not).
	GuardNamespace bool
	// Work takes the charges of Compile; nil: nothing does.
	Work *work.Budget
}

// Env has a render's clock and budget.
type Env struct {
	// Now is the clock of strftime_now, zone included; nil is time.Now.
	Now func() time.Time
	// Work takes the charges of the render. When it ends, the error is an *Error of kind
	// ErrLimit that wraps work's error. nil: a budget of half a second.
	Work *work.Budget
}

// Template is a compiled template, safe for concurrent use.
type Template struct {
	limits Limits
	guard  bool
	tree   *templateNode
	fn     *function
	run    execFn
	names  []string // the names that it looks up in the context
	states sync.Pool
}

// Compile compiles a chat template as transformers' environment does:
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls
// and the generation tag. The error is an *Error of kind ErrSyntax.
func Compile(src string, o Options) (t *Template, err error) {
	defer rescue(&err, 0)
	if len(src) > MaxTemplate {
		fail(ErrSyntax, "the template is larger than %d bytes", MaxTemplate)
	}
	l := o.Limits
	if l.Depth == 0 {
		l.Depth = DefaultDepth
	}
	if l.Output == 0 {
		l.Output = DefaultOutput
	}
	b := work.Or(o.Work)
	t = &Template{limits: l, guard: o.GuardNamespace, tree: parse(b, src)}
	c := &compiler{work: b}
	t.fn, t.run = c.template(t.tree)
	t.names = c.names
	return t, nil
}

// Render appends the text for vars (the keyword arguments of Python's render) to dst.
// The error is an *Error; with it, Render returns dst without the text.
func (t *Template) Render(dst []byte, vars *pyvalue.Dict, env Env) (out []byte, err error) {
	st, _ := t.states.Get().(*state)
	if st == nil {
		st = &state{}
		st.pooled()
	}
	if st.resolved == nil {
		st.resolved = make([]resolved, len(t.names))
	}
	*st = state{out: dst, vars: vars, now: env.Now, work: env.Work, limits: t.limits,
		names: t.names, resolved: st.resolved, frames: st.frames, arena: st.arena, guard: t.guard, outputMax: len(dst) + t.limits.Output}
	if st.now == nil {
		st.now = time.Now
	}
	if st.work == nil {
		st.own.Start(context.Background(), unbudgeted, 0)
		st.work = &st.own
	}
	out = dst
	defer func() {
		line := st.line
		clear(st.resolved)
		st.arena.clear()
		*st = state{frames: st.frames, resolved: st.resolved, arena: st.arena}
		t.states.Put(st)
		rescueFrom(recover(), &err, line)
	}()
	f := st.newFrame(t.fn, nil)
	t.run(st, f)
	st.pay()
	st.freeFrame(t.fn, f)
	return st.out, nil
}

func rescue(err *error, line int) { rescueFrom(recover(), err, line) }

// rescueFrom turns a panic of this package into an error. Any other panic is a bug
// here; it becomes ErrInternal, and does not end the process.
func rescueFrom(r any, err *error, line int) {
	if r == nil {
		return
	}
	if stopped, ok := work.Stopped(r); ok {
		*err = &Error{Kind: ErrLimit, Line: line, stopped: stopped}
		return
	}
	e, ok := r.(*Error)
	if !ok {
		*err = &Error{Kind: ErrInternal, Line: line, Detail: fmt.Sprint(r)}
		return
	}
	if e.Line == 0 {
		e.Line = line
	}
	*err = e
}

// Detail returns Python's message for err, or a message close to it. It may quote the
// request: it is for a user's terminal, not for logs.
func Detail(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Detail != "" {
		return e.Detail
	}
	return err.Error()
}
