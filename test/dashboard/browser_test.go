package dashboard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"warmroute/render/testkit/must"
)

// browser is a tab, and everything that it complained about or fetched.
type browser struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string
	fetched  []string // without their queries, once
}

func open(t *testing.T) *browser {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "chromium-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a browser that is just ending may still write there
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(dir),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				b.problems = append(b.problems, fmt.Sprintf("console: %s", e.Args[0].Value))
			}
		case *log.EventEntryAdded:
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		case *network.EventRequestWillBeSent:
			if path, _, _ := strings.Cut(e.Request.URL, "?"); !slices.Contains(b.fetched, path) {
				b.fetched = append(b.fetched, path)
			}
		}
	})
	if err := chromedp.Run(ctx, network.Enable(), log.Enable()); err != nil {
		t.Fatalf("%v: is chromium installed? (make test-dashboard does)", err)
	}
	return b
}

// do runs actions one after another. The page may replace an element between the moment when
// an action finds it and the moment when the action uses it; that action runs again.
func (b *browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	for _, action := range actions {
		err := chromedp.Run(b.ctx, action)
		for replaced(err) {
			err = chromedp.Run(b.ctx, action)
		}
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("%v; the browser complains %q and has asked %q", err, b.problems, b.fetched)
		}
	}
}

// replaced reports whether an error says that an element is not in the page any more.
func replaced(err error) bool {
	var of *cdproto.Error
	return errors.As(err, &of) && (strings.Contains(of.Message, "node") || strings.Contains(of.Message, "Node"))
}

// text returns the text of the first such element, once there is one. It is found and read in one
// step, since the page may replace it between two.
func (b *browser) text(t *testing.T, selector string) (text string) {
	t.Helper()
	var found struct{ Text string }
	b.do(t, chromedp.Poll(fmt.Sprintf(`(() => { const e = document.querySelector(%q); return e && { Text: e.innerText } })()`, selector), &found, chromedp.WithPollingTimeout(0)))
	return found.Text
}

// eval returns the value of an expression in the page.
func eval[T any](t *testing.T, b *browser, script string) (value T) {
	t.Helper()
	b.do(t, chromedp.Evaluate(script, &value))
	return value
}

// fits reports a page that is wider than the screen, and charts that do not shrink to their
// frames. Their size follows the screen's a moment later, and until then the frames cut them.
func fits(t *testing.T, b *browser, screen int64) {
	t.Helper()
	if width := eval[int64](t, b, "document.documentElement.scrollWidth"); width > screen {
		t.Errorf("the page is %d px wide, the screen %d", width, screen)
	}
	until(t, "the charts fit their frames", func() bool {
		return eval[bool](t, b, `[...document.querySelectorAll("figure")].every((f) => f.scrollWidth <= f.clientWidth)`)
	})
}
