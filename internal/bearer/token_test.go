package bearer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

func file(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAccepts(t *testing.T) {
	token := must.Get(File(file(t, "secret\n")))(t)
	for header, want := range map[string]bool{
		"Bearer secret": true, "Bearer secre": false, "Bearer secret2": false, "bearer secret": false, "secret": false, "": false, "Bearer ": false,
	} {
		if got := token.Accepts([]string{header}); got != want {
			t.Errorf("%q: %v", header, got)
		}
	}
	if token.Accepts(nil) {
		t.Error("a call without a header is accepted")
	}
}

// TestRenewal: a renewed token counts once the one read is old; an emptied file
// changes nothing.
func TestRenewal(t *testing.T) {
	path := file(t, "first")
	token := must.Get(File(path))(t)
	now := time.Unix(1, 0)
	token.now, token.readAt = func() time.Time { return now }, now
	for _, step := range []struct {
		text string
		age  time.Duration
		want string
	}{{"second", readEvery - 1, "Bearer first"}, {"second", readEvery, "Bearer second"}, {"", 2 * readEvery, "Bearer second"}} {
		must.Do(t, os.WriteFile(path, []byte(step.text), 0o600))
		now = time.Unix(1, 0).Add(step.age)
		if got := token.Header(); got != step.want {
			t.Errorf("after %v the header is %q, want %q", step.age, got, step.want)
		}
	}
}

func TestNoToken(t *testing.T) {
	for _, text := range []string{"", "\n", "two words"} {
		if _, err := File(file(t, text)); err == nil || text != "" && strings.Contains(err.Error(), "two") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := File("/nowhere"); err == nil {
		t.Error("a file that does not exist is accepted")
	}
}
