package hostile

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"warmroute/render/testkit/must"
)

// proc reads a file of the router in /proc.
func (s *site) proc(name string) string {
	s.t.Helper()
	return string(must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/%s", s.router.PID(), name)))(s.t))
}

// cpu is the CPU time that the router has used so far, in steps of the kernel's 10 ms.
func (s *site) cpu() time.Duration {
	s.t.Helper()
	stat := s.proc("stat")
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // behind the name: proc_pid_stat(5) counts them as 14 and 15
	var ticks time.Duration
	for _, field := range []int{user, system} {
		n := must.Get(strconv.Atoi(fields[field]))(s.t)
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond
}

// resident is the router's resident memory in bytes, and peak the most of it since the start
// or the last call of resetPeak.
func (s *site) resident() int64 { s.t.Helper(); return s.memory("VmRSS") }
func (s *site) peak() int64     { s.t.Helper(); return s.memory("VmHWM") }

// resetPeak has peak begin with the memory that is resident now.
func (s *site) resetPeak() {
	s.t.Helper()
	must.Do(s.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.router.PID()), []byte("5"), 0))
}

func (s *site) memory(name string) int64 {
	s.t.Helper()
	for line := range strings.Lines(s.proc("status")) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n := must.Get(strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64))(s.t)
			return n << 10
		}
	}
	s.t.Fatalf("no %s in the router's status", name)
	return 0
}

// logLines is how many lines of the router's log contain text; "" counts all.
func (s *site) logLines(text string) (n int) {
	s.t.Helper()
	b := must.Get(os.ReadFile(s.router.Log))(s.t)
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte(text)) {
			n++
		}
	}
	return n
}

// connections is how many of the router's TCP connections are established to a remote port;
// port 0 counts all.
func (s *site) connections(port int) (n int) {
	s.t.Helper()
	const established = "01"
	own := s.sockets()
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		for line := range strings.Lines(s.proc(table)) {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != established || !own[f[9]] {
				continue
			}
			_, hex, _ := strings.Cut(f[2], ":")
			if remote, err := strconv.ParseInt(hex, 16, 32); err == nil && (port == 0 || int(remote) == port) {
				n++
			}
		}
	}
	return n
}

// sockets are the inodes of the router's sockets.
func (s *site) sockets() map[string]bool {
	s.t.Helper()
	files := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.router.PID())))(s.t)
	out := map[string]bool{}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil {
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				out[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return out
}
