package testenv

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Simulator is a simulated vLLM replica in a process of its own.
type Simulator struct {
	*Process
	Addr, Events, Replay string // host:port, unless flags state others
}

// simulator is the compiled vllmsim. Its file is removed at once, and the open
// descriptor keeps the program until this process ends.
var simulator = sync.OnceValues(func() (*os.File, error) {
	dir, err := os.MkdirTemp("", "vllmsim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, err := Build(dir, "warmroute/lab/cmd/vllmsim")
	if err != nil {
		return nil, err
	}
	return os.Open(binary)
})

// StartSimulator runs a simulated replica on free ports, whose engine takes no
// time, until the test ends. flags are more of vllmsim's and take precedence.
func StartSimulator(t testing.TB, flags ...string) Simulator {
	t.Helper()
	binary, err := simulator()
	if err != nil {
		t.Fatal(err)
	}
	at := Addresses(t, 3)
	s := Simulator{Addr: at[0], Events: at[1], Replay: at[2]}
	args := append([]string{"-listen", s.Addr, "-events", s.Events, "-replay", s.Replay, "-prefill-rate=-1", "-decode-rate=-1"}, flags...)
	if i := slices.Index(flags, "-listen"); i >= 0 {
		s.Addr = flags[i+1]
	}
	if s.Process, err = Start(t.TempDir(), "vllmsim", nil, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), binary.Fd()), args...); err != nil {
		t.Fatal(err)
	}
	s.StopAfter(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := s.WaitHTTP(ctx, "http://"+s.Addr+"/health"); err != nil {
		t.Fatal(err)
	}
	return s
}
