// Package dashboard holds the test of the operator's page in real Chromium.
package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/stage"
	"warmroute/render/testkit/must"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// secret stands in every prompt and must not be on the page.
const secret = "ZEBRA-LANTERN-77"

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testenv.Until(t, time.Minute, what, ok)
}

// stack runs two simulated replicas, the router with these sections in its configuration
// behind those of the admin port, and Envoy. It returns Envoy's URL and the admin port's
// address.
func stack(t *testing.T, sections string) (front, admin string) {
	t.Helper()
	site := stage.StartSite(t, simulated, sections)
	return site.URL, site.Admin
}

var simulated = stage.Fleet{Replicas: 2, Blocks: 2048, BlockSize: 16, Model: "sim", PrefillRate: 20000, DecodeRate: 500, StepTokens: 2048}

// lastID is the request id of the last decision, as Envoy gave it.
func lastID(t *testing.T, admin string) string {
	t.Helper()
	answer := must.Get(http.Get("http://" + admin + "/debug/explain?n=1"))(t)
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
	testenv.Post(t, front+"/v1/chat/completions", []byte(body)).Into(t, nil)
}

// TestPage: the page loads, shows the fleet, updates while requests come, finds
// a decision by its request id, fits a phone, contacts no other host, and logs no
// error; no prompt's text is on it.
func TestPage(t *testing.T) {
	front, admin := stack(t, "")
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
	if got := b.text(t, "#fleet tbody tr td:nth-child(2)"); got != "sim" {
		t.Errorf("the model of a replica is %q", got)
	}
	if got := b.text(t, "#fleet tbody tr td:nth-child(4)"); got != "following" {
		t.Errorf("the KV events of a replica are %q", got)
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
		return strings.HasSuffix(b.text(t, "#tile-hit"), "%") && b.text(t, "#tile-ttft") != "–" && b.text(t, "#tile-hinted") == "100.0 %"
	})
	until(t, "where the time goes and what was saved", func() bool {
		chat(t, front, fmt.Sprint(2, prompt))
		for _, part := range []string{"router", "queue", "prefill", "decode"} {
			if b.text(t, "#spent-"+part) == "–" {
				return false
			}
		}
		return strings.Contains(b.text(t, "#tile-saved-more"), "of prefill, since ")
	})

	// A decision is found by its request id, with its candidates side by side.
	id := lastID(t, admin)
	b.do(t, chromedp.SendKeys("#find-id", id, chromedp.ByQuery), chromedp.WaitNotPresent("#decisions > tbody > tr:nth-child(3)", chromedp.ByQuery),
		chromedp.WaitVisible("#decisions > tbody > tr:nth-child(1) + tr.detail", chromedp.ByQuery), chromedp.WaitVisible(".box tbody tr:nth-child(2)", chromedp.ByQuery))
	if row := b.text(t, "#decisions tbody"); !strings.Contains(row, id) || !strings.Contains(row, "warm") {
		t.Errorf("the decision found: %q, want %s, warm", row, id)
	}
	if best := b.text(t, ".box tbody tr.chosen"); strings.Count(best, "–") > 1 {
		t.Errorf("the chosen candidate lacks numbers: %q", best)
	}
	if row, line := b.text(t, ".box tbody tr.chosen"), b.text(t, ".box .why"); !strings.Contains(row, "has the whole prompt") || !strings.Contains(line, "no candidate has more than the chosen one. To do: Nothing.") {
		t.Errorf("why not more: %q, %q", row, line)
	}

	// A phone: nothing is wider than the screen, tables scroll inside their frames.
	b.do(t, emulation.SetDeviceMetricsOverride(400, 844, 1, true), chromedp.Reload(), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery))
	fits(t, b, 400)
	var html string
	b.do(t, chromedp.OuterHTML("html", &html, chromedp.ByQuery))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		t.Errorf("the browser complains: %q", b.problems)
	}
	if len(b.fetched) < 12 {
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
		answer := must.Get(http.Get("http://" + admin + path))(t)
		var all strings.Builder
		_ = answer.Write(&all)
		answer.Body.Close()
		if strings.Contains(all.String(), secret) {
			t.Errorf("%s has a prompt's text", path)
		}
	}
}

// TestTrial: during a trial the page has both groups side by side, whose requests are all
// of them; outside of one it has no such table.
func TestTrial(t *testing.T) {
	const requests = 24
	front, admin := stack(t, "filter: {share: 50, token_budget: 30s, body_wait: 2m}\n")
	b := open(t)
	b.do(t, chromedp.Navigate("http://"+admin+"/dashboard/"), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery), chromedp.WaitNotVisible("#trial", chromedp.ByQuery))
	for i := range requests {
		chat(t, front, fmt.Sprint(i%2, strings.Repeat(" a story", 100)))
	}
	var cells [][]string
	until(t, "all requests are compared", func() bool {
		b.do(t, chromedp.Evaluate(`[...document.querySelectorAll("#compared tbody tr")].map(tr => [...tr.cells].map(td => td.textContent))`, &cells))
		sum := 0
		for _, row := range cells {
			n, _ := strconv.Atoi(row[2])
			sum += n
		}
		return sum == requests
	})
	if len(cells) != 2 || cells[0][0] != "sim" || cells[0][1] != "sent" || cells[1][1] != "withheld" || cells[1][2] == "0" || cells[1][6] == "–" {
		t.Errorf("the table has %q", cells)
	}
	if row := b.text(t, "#decisions tbody"); !strings.Contains(row, "withheld: share") {
		t.Errorf("decisions: %q", row)
	}
}

// TestToken: the page asks for the admin token, says that a wrong one is refused,
// shows the fleet with the right one, and keeps it for the tab alone.
func TestToken(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(secret, []byte("admin-token-of-the-test\n"), 0o600))
	_, admin := stack(t, "  token_file: "+secret+"\n")
	for _, path := range []string{"/debug/replicas", "/debug/history", "/debug/explain", "/policy"} {
		answer := must.Get(http.Get("http://" + admin + path))(t)
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without the token: %s", path, answer.Status)
		}
	}
	b := open(t)
	b.do(t, chromedp.Navigate("http://"+admin+"/dashboard/"), chromedp.WaitVisible("#unlock", chromedp.ByQuery),
		chromedp.SendKeys("#token", "wrong\n", chromedp.ByQuery), chromedp.WaitVisible("#token-wrong", chromedp.ByQuery),
		chromedp.SendKeys("#token", "admin-token-of-the-test\n", chromedp.ByQuery), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery),
		chromedp.WaitNotVisible("#unlock", chromedp.ByQuery),
		chromedp.Reload(), chromedp.WaitVisible("#fleet tbody tr:nth-child(2)", chromedp.ByQuery), chromedp.WaitNotVisible("#unlock", chromedp.ByQuery))
	var kept []string
	b.do(t, chromedp.Evaluate("[localStorage.length.toString(), document.cookie]", &kept))
	if kept[0] != "0" || kept[1] != "" {
		t.Errorf("the page keeps %q beyond the tab", kept)
	}
}
