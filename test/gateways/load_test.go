//go:build gateways

package gateways

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

const (
	clients  = 8  // at once
	groups   = 12 // shared prefixes
	patience = 30 * time.Second
)

// cut is why a request failed whose answer had begun.
const cut = "cut"

// number names a request in the access log.
const number = "x-number"

var (
	lastNumber atomic.Uint64
	begins     = sync.OnceValue(func() (out []string) {
		for g := range groups {
			out = append(out, testenv.Tokens(uint64(g), 768))
		}
		return out
	})
)

// prompt is the body of the n-th request: a shared prefix and a tail of its own.
func prompt(n uint64) []byte {
	return fmt.Appendf(nil, `{"model":"sim","max_tokens":4,"stream":%t,"prompt":[%s,%s]}`, n%2 == 0, begins()[n%groups], testenv.Tokens(1000+n, 64))
}

// post sends a body and reads the whole answer. served is the replica that Envoy
// reports, if any; why states how the request failed, "" when it did not.
func post(client *http.Client, url string, n uint64, body []byte, headers map[string]string) (served, why string) {
	req, err := http.NewRequest(http.MethodPost, url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return "", err.Error()
	}
	sum := sha256.Sum256(body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(number, strconv.FormatUint(n, 10))
	req.Header.Set(bodySum, hex.EncodeToString(sum[:]))
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", "no answer"
	}
	defer resp.Body.Close()
	served = resp.Header.Get(envoy.HeaderServed)
	answer, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode != http.StatusOK:
		return served, strconv.Itoa(resp.StatusCode)
	case err != nil:
		return served, cut
	case !bytes.HasSuffix(bytes.TrimSpace(answer), []byte("}")) && !bytes.HasSuffix(bytes.TrimSpace(answer), []byte("[DONE]")):
		return served, cut
	}
	return served, ""
}

// tally is a load's view of its requests.
type tally struct {
	from, to uint64 // numbers of its requests: from < n <= to
	sent     int
	failed   map[string]int // by why
	cut      int            // answers that had begun and did not end; such a request cannot be repeated
	longest  time.Duration
}

func (s tally) String() string {
	return fmt.Sprintf("%d requests, failed %v, %d cut, the longest took %v", s.sent, s.failed, s.cut, s.longest.Round(time.Millisecond))
}

// load sends requests until it is stopped.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	tally  tally
	served map[string]uint64 // by address: the last number it served, where Envoy reports it
}

func startLoad(url string, headers map[string]string) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel, tally: tally{from: lastNumber.Load(), failed: map[string]int{}}, served: map[string]uint64{}}
	for range clients {
		client := newClient()
		l.wg.Go(func() {
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				n := lastNumber.Add(1)
				body := prompt(n)
				began := time.Now()
				served, why := post(client, url, n, body, headers)
				l.took(n, time.Since(began), served, why)
			}
		})
	}
	return l
}

func (l *load) took(n uint64, d time.Duration, served, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.sent++
	l.tally.longest = max(l.tally.longest, d)
	switch why {
	case "":
	case cut:
		l.tally.cut++
	default:
		l.tally.failed[why]++
	}
	if served != "" {
		l.served[served] = max(n, l.served[served])
	}
}

// stop ends the load and returns its result. It may be called twice.
func (l *load) stop() tally {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tally.to == 0 {
		l.tally.to = lastNumber.Load()
	}
	return l.tally
}

// last is the number of the last request an address served.
func (l *load) last(addr string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served[addr]
}

func newClient() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableCompression: true}}
}

// sentence is a line of the access log, as accessLog writes it.
type sentence struct {
	number       uint64
	hint, served string // "-": none
	code         int
}

// accessLog is Envoy's format of it.
const accessLog = "%REQ(" + number + ")% %REQ(" + envoy.HeaderDestination + ")% %UPSTREAM_REMOTE_ADDRESS% %RESPONSE_CODE%\n"

// logged reads the access log's lines about the requests of s, once all are there.
func logged(t *testing.T, file string, s tally) []sentence {
	t.Helper()
	var out []sentence
	until(t, "every request in the access log", func() bool {
		out = out[:0]
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) != 4 {
				continue
			}
			n, err := strconv.ParseUint(f[0], 10, 64)
			if err != nil || n <= s.from || n > s.to {
				continue
			}
			code, _ := strconv.Atoi(f[3])
			out = append(out, sentence{n, f[1], f[2], code})
		}
		return len(out) >= s.sent
	})
	return out
}

// hints counts requests with a hint, those served by its first replica, and those
// served by another of its list.
func hints(lines []sentence) (hinted, followed, next int) {
	for _, l := range lines {
		if l.hint == "-" {
			continue
		}
		hinted++
		list := strings.Split(l.hint, ",")
		switch {
		case l.served == list[0]:
			followed++
		case strings.Contains(","+l.hint+",", ","+l.served+","):
			next++
		}
	}
	return hinted, followed, next
}
