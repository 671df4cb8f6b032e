package bearer

import (
	"crypto/subtle"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// readEvery bounds the age of a token read from its file: a renewed token and
// the former one overlap for longer.
const readEvery = 10 * time.Second

// Token is a token in a file.
type Token struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	value  string
	readAt time.Time
}

// File returns the token in a file, which must hold one; nil without a file: no token is needed.
func File(path string) (*Token, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no configured token is no error
	}
	t := &Token{path: path, now: time.Now}
	if err := t.read(); err != nil {
		return nil, fmt.Errorf("token_file: %w", err)
	}
	return t, nil
}

func valid(value string) bool { return value != "" && !strings.ContainsAny(value, " \r\n\t") }

func (t *Token) read() error {
	t.readAt = t.now()
	b, err := os.ReadFile(t.path)
	if err != nil {
		return err
	}
	value := strings.TrimSpace(string(b))
	if !valid(value) {
		return fmt.Errorf("%s does not hold one token", t.path)
	}
	t.value = value
	return nil
}

// Header returns the value of a client's authorization header.
func (t *Token) Header() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now().Sub(t.readAt) >= readEvery {
		_ = t.read() // it keeps the former token
	}
	return "Bearer " + t.value
}

// Accepts reports whether one of a call's authorization headers has the token.
func (t *Token) Accepts(headers []string) bool {
	want := []byte(t.Header())
	for _, got := range headers {
		if subtle.ConstantTimeCompare([]byte(got), want) == 1 {
			return true
		}
	}
	return false
}
