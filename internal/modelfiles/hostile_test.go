package modelfiles

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmroute/render/testkit/must"
)

// HF_TOKEN goes to the hub alone. A redirect to another port of its host, which net/http
// takes for the same server, does not carry it.
func TestTokenStaysWithTheHub(t *testing.T) {
	fake, _, _ := newHub(t)
	front := httptest.NewServer(fake)
	defer front.Close()
	h := open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": t.TempDir(), "HF_TOKEN": "secret"})
	must.Get(h.Fetch(t.Context(), "own/model"))(t)
	hub, elsewhere := 0, 0
	for _, a := range fake.auth {
		if a == "Bearer secret" {
			hub++
		} else if a == "" {
			elsewhere++
		}
	}
	if hub != fake.asked || elsewhere != len(fake.ranges) || elsewhere == 0 {
		t.Errorf("the token went to the hub %d times of %d, and to the server beside it %d times of %d",
			hub, fake.asked, len(fake.ranges)-elsewhere, len(fake.ranges))
	}
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The token is sent to the hub's scheme, host and port, and over plain http only on this
// machine.
func TestTokenIsSentWhere(t *testing.T) {
	for _, c := range []struct {
		hub, to string
		sent    bool
	}{
		{"https://hub.example", "https://hub.example/own/model", true},
		{"https://hub.example", "http://hub.example/own/model", false},
		{"https://hub.example", "https://cdn.hub.example/own/model", false},
		{"https://hub.example", "https://hub.example:8443/own/model", false},
		{"http://hub.example", "http://hub.example/own/model", false},
		{"http://127.0.0.1:8000", "http://127.0.0.1:8000/own/model", true},
		{"http://[::1]:8000", "http://[::1]:8000/own/model", true},
	} {
		h := open(t, map[string]string{"HF_ENDPOINT": c.hub, "HF_HOME": t.TempDir(), "HF_TOKEN": "secret"})
		a := h.client.Transport.(*authorized)
		sent := false
		a.next = roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Header.Get("Authorization") != ""
			return nil, errors.New("no network")
		})
		to, _ := url.Parse(c.to)
		_, _ = a.RoundTrip(&http.Request{URL: to, Header: http.Header{}})
		if sent != c.sent {
			t.Errorf("hub %s, request to %s: sent %v, want %v", c.hub, c.to, sent, c.sent)
		}
	}
	for _, bad := range []string{"ftp://hub.example", "hub.example", "https://user:word@hub.example", "https://"} {
		if _, err := New(func(k string) string { return map[string]string{"HF_ENDPOINT": bad, "HF_HOME": "/x"}[k] }); err == nil {
			t.Errorf("the endpoint %s is accepted", bad)
		}
	}
}

// endless is a hub whose files do not end.
func endless(t *testing.T) (front *httptest.Server, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	front = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("X-Repo-Commit", commit)
		w.Header().Set("ETag", `"abc"`)
		if r.Method == http.MethodHead {
			return
		}
		for piece := make([]byte, 1<<16); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	t.Cleanup(front.Close)
	return front, asked
}

func partial(t *testing.T, home string) []string {
	t.Helper()
	return must.Get(filepath.Glob(filepath.Join(home, "hub", "*", "blobs", "*.incomplete")))(t)
}

// A download ends at the limit of bytes, its part is removed, and from then on no
// request goes to the hub until the limit is changed.
func TestEndlessDownloadEndsAtTheLimit(t *testing.T) {
	front, asked := endless(t)
	home := t.TempDir()
	h := open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": home})
	h.Limit(1 << 20)
	_, err := h.Fetch(t.Context(), "own/model")
	if !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "1 MiB (tokens.download_mib)") {
		t.Errorf("the error is %v", err)
	}
	if bytes := h.Downloaded(); bytes > 1<<20+1<<16 || h.meter.files != 1 {
		t.Errorf("%d bytes and %d files were downloaded", bytes, h.meter.files)
	}
	if left := partial(t, home); len(left) > 0 {
		t.Errorf("left on the disk: %v", left)
	}
	n := asked.Load()
	for i := range 10 {
		if _, err := h.Fetch(t.Context(), fmt.Sprintf("own/model%d", i)); !errors.Is(err, ErrPaused) || !errors.Is(err, ErrLimit) {
			t.Errorf("the next model: %v", err)
		}
	}
	if asked.Load() != n {
		t.Errorf("%d requests after the limit", asked.Load()-n)
	}
	h.Limit(DefaultBytes)
	h.meter.files = mostFiles
	if _, err := h.Fetch(t.Context(), "own/model"); !errors.Is(err, ErrLimit) || errors.Is(err, ErrPaused) || !strings.Contains(err.Error(), "1000 files") {
		t.Errorf("a file more than a thousand: %v", err)
	}
}

// A file is not read beyond the size that its hub has named.
func TestMoreThanTheNamedSizeIsRefused(t *testing.T) {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Repo-Commit", commit)
		w.Header().Set("ETag", `"abc"`)
		if r.Method == http.MethodHead {
			w.Header().Set("X-Linked-Size", "1000")
			return
		}
		for range 100 {
			_, _ = w.Write(make([]byte, 1<<16))
		}
	}))
	defer front.Close()
	home := t.TempDir()
	h := open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": home})
	if _, err := h.Fetch(t.Context(), "own/model"); !errors.Is(err, errRefused) {
		t.Errorf("the error is %v", err)
	}
	if bytes := h.Downloaded(); bytes > 1001 || h.meter.files != 1 || len(partial(t, home)) > 0 {
		t.Errorf("%d bytes and %d files were downloaded, %v is left", bytes, h.meter.files, partial(t, home))
	}
}

// A disk without room ends downloads for a while: one error names the cause, the parts
// are removed, and other models are not tried. The kernel refuses the write here as the
// limit of a file's size, in a process of its own.
func TestFullDisk(t *testing.T) {
	if os.Getenv("FULL_DISK") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		c.Env = append(os.Environ(), "FULL_DISK=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	must.Do(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 16, Max: 1 << 16}))
	front, asked := endless(t)
	home := t.TempDir()
	h := open(t, map[string]string{"HF_ENDPOINT": front.URL, "HF_HOME": home})
	now := time.Unix(0, 0)
	h.meter.now = func() time.Time { return now }
	_, err := h.Fetch(context.Background(), "own/model")
	if !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrPaused) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), home) {
		t.Errorf("the error is %v", err)
	}
	if left := partial(t, home); len(left) > 0 {
		t.Errorf("left on the disk: %v", left)
	}
	n := asked.Load()
	if n != 2 {
		t.Errorf("%d requests, want one for the size and one for the file", n)
	}
	if _, err := h.Fetch(context.Background(), "own/other"); !errors.Is(err, ErrPaused) || asked.Load() != n {
		t.Errorf("another model: %v after %d requests", err, asked.Load()-n)
	}
	now = now.Add(noRoomPause)
	if _, err := h.Fetch(context.Background(), "own/other"); errors.Is(err, ErrPaused) || asked.Load() == n {
		t.Errorf("after the pause: %v after %d requests", err, asked.Load()-n)
	}
}
