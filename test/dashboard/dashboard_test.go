// Package dashboard holds the test of the operator's page in real Chromium.
package dashboard

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.Bool("screenshots", false, "rewrite the screenshots in docs/images")

const root = "../.."

// secret stands in every prompt and must not be on the page.
const secret = "ZEBRA-LANTERN-77"

// start runs a program of the project until the test ends.
func start(t *testing.T, bin string, args ...string) {
	t.Helper()
	cmd := exec.Command(bin, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func ports(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// stack runs two simulated replicas, the router and Envoy, and returns Envoy's
// address and the admin port's.
func stack(t *testing.T) (front, admin string) {
	t.Helper()
	dir := t.TempDir()
	for _, command := range []string{"extproc", "vllmsim"} {
		build := exec.Command("go", "build", "-o", filepath.Join(dir, command), "./cmd/"+command)
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	envoy, err := exec.Command(filepath.Join(root, "scripts/install-envoy.sh")).Output()
	if err != nil {
		t.Fatal(err)
	}
	p := ports(t, 11)
	config := fmt.Sprintf("listen: %s\nadmin: {listen: %q}\nenvoy: {listen: %q, admin: %q}\nindex_service: {listen: %q}\nfleet:\n  replicas:\n", p[0], p[1], p[2], p[3], p[10])
	for i := range 2 {
		at := p[4+3*i:]
		start(t, filepath.Join(dir, "vllmsim"), "-listen", at[0], "-events", at[1], "-replay", at[2], "-prefill-rate", "20000", "-decode-rate", "500")
		config += fmt.Sprintf("  - address: %q\n", at[0])
	}
	file := filepath.Join(dir, "warmroute.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(dir, "extproc"), "serve", "-config", file)
	bootstrap, err := exec.Command(filepath.Join(dir, "extproc"), "envoy-config", "-config", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	boot := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(boot, bootstrap, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, strings.TrimSpace(string(envoy)), "-c", boot, "--log-level", "error", "--use-dynamic-base-id", "--concurrency", "2")
	for _, url := range []string{"http://" + p[1] + "/readyz", "http://" + p[3] + "/ready"} {
		until(t, url, func() bool {
			answer, err := http.Get(url)
			if err != nil {
				return false
			}
			answer.Body.Close()
			return answer.StatusCode == http.StatusOK
		})
	}
	return p[2], p[1]
}

// lastID is the request id of the last decision, as Envoy gave it.
func lastID(t *testing.T, admin string) string {
	t.Helper()
	answer, err := http.Get("http://" + admin + "/debug/explain?n=1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var explained struct{ Decisions []struct{ ID string } }
	if err := json.NewDecoder(answer.Body).Decode(&explained); err != nil || len(explained.Decisions) != 1 || explained.Decisions[0].ID == "" {
		t.Fatalf("%v: %+v", err, explained)
	}
	return explained.Decisions[0].ID
}

// chat sends one turn of a conversation.
func chat(t *testing.T, front, text string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"sim","max_tokens":4,"messages":[{"role":"user","content":%q}]}`, text)
	answer, err := http.Post("http://"+front+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d", answer.StatusCode)
	}
}

// browser is a tab, and everything that it complained about or fetched.
type browser struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string
	fetched  []string
}

func open(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true), chromedp.Flag("disable-quic", true))
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
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
			b.fetched = append(b.fetched, e.Request.URL)
		}
	})
	if err := chromedp.Run(ctx, network.Enable(), log.Enable()); err != nil {
		t.Fatalf("%v: is chromium installed? (make test-dashboard does)", err)
	}
	return b
}

func (b *browser) do(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.Fatalf("%v; the browser complains %q and has asked %q", err, b.problems, b.fetched)
	}
}

func (b *browser) text(t *testing.T, selector string) (text string) {
	t.Helper()
	b.do(t, chromedp.Text(selector, &text, chromedp.ByQuery))
	return text
}

// TestPage: the page loads, shows the fleet, updates while requests come, finds
// a decision by its request id, fits a phone, asks nobody else, and complains of
// nothing; no prompt's text is on it.
func TestPage(t *testing.T) {
	front, admin := stack(t)
	prompt := strings.Repeat("a long story about "+secret+" and the sea, ", 40)
	for i := range 8 {
		chat(t, front, fmt.Sprint(i%3, prompt))
	}
	b := open(t)
	page := "http://" + admin + "/dashboard/"
	b.do(t, chromedp.EmulateViewport(1280, 1100), chromedp.Navigate(page), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery),
		chromedp.WaitVisible("#decisions tbody tr:nth-child(8)", chromedp.ByQuery), chromedp.WaitVisible("#chart-flight canvas", chromedp.ByQuery))
	if got := b.text(t, "#tile-ready"); got != "2 of 2" {
		t.Errorf("%q replicas ready", got)
	}
	if got := b.text(t, "#state"); got != "ready" {
		t.Errorf("state %q", got)
	}

	// It updates by itself.
	for i := range 4 {
		chat(t, front, fmt.Sprint(i%2, prompt))
	}
	b.do(t, chromedp.WaitVisible("#decisions tbody tr:nth-child(12)", chromedp.ByQuery))

	// The charts and tiles have an hour's samples, two of them by now.
	until(t, "a hit rate", func() bool {
		chat(t, front, fmt.Sprint(2, prompt))
		return strings.HasSuffix(b.text(t, "#tile-hit"), "%") && b.text(t, "#tile-ttft") != "–"
	})

	// A decision is found by its request id, with its candidates side by side.
	id := lastID(t, admin)
	b.do(t, chromedp.SendKeys("#find-id", id, chromedp.ByQuery), chromedp.WaitNotPresent("#decisions tbody tr:nth-child(2)", chromedp.ByQuery),
		chromedp.WaitVisible("#decisions tbody tr", chromedp.ByQuery), chromedp.WaitVisible("#candidates tbody tr:nth-child(2)", chromedp.ByQuery))
	if row := b.text(t, "#decisions tbody"); !strings.Contains(row, id) || !strings.Contains(row, "warm") {
		t.Errorf("the decision found: %q, want %s, warm", row, id)
	}
	if best := b.text(t, "#candidates tbody tr.chosen"); strings.Count(best, "–") > 1 {
		t.Errorf("the chosen candidate lacks numbers: %q", best)
	}
	if *screenshots {
		b.shoot(t, "dashboard.png")
	}

	// A phone: nothing is wider than the screen, tables scroll inside their frames.
	var width int
	b.do(t, emulation.SetDeviceMetricsOverride(390, 844, 1, true), chromedp.Reload(), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery),
		chromedp.Evaluate("document.documentElement.scrollWidth", &width))
	if width > 390 {
		t.Errorf("the page is %d px wide, a phone's screen 390", width)
	}
	if *screenshots {
		b.shoot(t, "dashboard-phone.png")
	}

	var html string
	b.do(t, chromedp.OuterHTML("html", &html, chromedp.ByQuery))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		t.Errorf("the browser complains: %q", b.problems)
	}
	if len(b.fetched) < 8 {
		t.Errorf("only %d requests seen", len(b.fetched))
	}
	for _, url := range b.fetched {
		if !strings.HasPrefix(url, "http://"+admin+"/") && !strings.HasPrefix(url, "data:") {
			t.Errorf("the page asks %s", url)
		}
	}
	if strings.Contains(html, secret) {
		t.Error("a prompt's text is on the page")
	}
	for _, path := range []string{"/debug/explain?n=50", "/debug/replicas", "/debug/history"} {
		answer, err := http.Get("http://" + admin + path)
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		_ = answer.Write(&all)
		answer.Body.Close()
		if strings.Contains(all.String(), secret) {
			t.Errorf("%s has a prompt's text", path)
		}
	}
}

func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	var png []byte
	b.do(t, chromedp.Sleep(2*time.Second), chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(root, "docs/images", name), png, 0o644); err != nil {
		t.Fatal(err)
	}
}
