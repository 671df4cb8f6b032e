package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports that tests listen on are taken from below the range the kernel takes
// its own from (Linux: 32768 and up), so that no connection gets one between
// FreePorts and Listen, and in blocks, one per process, so that no test of
// another package does.
const (
	firstPort = 12768
	blockSize = 400
	blocks    = 50
)

// portBlock is a process's block of ports, handed out in turn.
type portBlock struct {
	mu    sync.Mutex
	first int
	next  int
}

// ports is claimed at first use and given back by the kernel when the process
// ends.
var ports = sync.OnceValues(claimBlock)

// FreePorts returns n TCP ports of the loopback interface without a listener,
// which no other process that uses this package will take.
func FreePorts(n int) ([]int, error) {
	b, err := ports()
	if err != nil {
		return nil, err
	}
	return b.take(n)
}

// Addresses are n free addresses of the loopback interface.
func Addresses(t testing.TB, n int) (out []string) {
	t.Helper()
	ports, err := FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		out = append(out, "127.0.0.1:"+strconv.Itoa(p))
	}
	return out
}

// claimBlock locks a block's file. The descriptor is left open on purpose: it
// is the claim.
func claimBlock() (*portBlock, error) {
	dir := filepath.Join(os.TempDir(), "warmroute-ports-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("testenv: find free ports: %w", err)
	}
	for try := range blocks {
		i := (os.Getpid() + try) % blocks // runs with another TMPDIR do not see these locks: do not begin where they do
		fd, err := syscall.Open(filepath.Join(dir, strconv.Itoa(i)), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return nil, fmt.Errorf("testenv: find free ports: %w", err)
		}
		if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			return &portBlock{first: firstPort + i*blockSize}, nil
		}
		syscall.Close(fd)
	}
	return nil, errors.New("testenv: find free ports: other processes hold all of them")
}

func (b *portBlock) take(n int) ([]int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []int
	for range blockSize {
		if len(out) == n {
			return out, nil
		}
		port := b.first + b.next
		b.next = (b.next + 1) % blockSize
		if isFree(port) {
			out = append(out, port)
		}
	}
	if len(out) == n {
		return out, nil
	}
	return nil, fmt.Errorf("testenv: of %d ports only %d are free", blockSize, len(out))
}

// isFree tries to listen on a port. No process is started meanwhile: a child has
// the socket too until it runs its program, and the port would be taken for a
// moment longer.
func isFree(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
