//go:build gateways

package gateways

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"warmroute/render/testkit/must"
)

// inside marks the process that has the network of its own.
const inside = "WARMROUTE_GATEWAYS_INSIDE"

// podIPs are the replicas that a cluster's DNS would know.
var podIPs = []string{podIP(1), podIP(2), podIP(3)}

// podIP is the address of the i-th simulated replica, from 1.
func podIP(i int) string { return fmt.Sprintf("10.244.0.%d", 10+i) }

// silentIP is an address that answers nothing, not even a refusal.
const silentIP = "10.99.0.7"

// TestMain runs the tests in a process with namespaces of its own.
func TestMain(m *testing.M) {
	if os.Getenv(inside) != "" {
		if err := furnish(); err != nil {
			fmt.Fprintln(os.Stderr, "gateways:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the child dies with this thread
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "gateways: namespaces of their own take root:", err)
		os.Exit(1)
	}
}

// names are the lines of /etc/hosts, with these addresses of the replicas.
func names(pods ...string) []byte {
	lines := bytes.NewBufferString("127.0.0.1 localhost\n")
	for _, ip := range pods {
		fmt.Fprintln(lines, ip, "vllm-pods.inference.svc.cluster.local")
	}
	return lines.Bytes()
}

// resolve has the replicas' name stand for other addresses.
func resolve(t *testing.T, pods ...string) {
	t.Helper()
	must.Do(t, os.WriteFile("/etc/hosts", names(pods...), 0o600))
}

// furnish makes the network and the names.
func furnish() error {
	lines := []string{"link set lo up"}
	for i := range 9 {
		lines = append(lines, "addr add "+podIP(i+1)+"/32 dev lo")
	}
	// A cable whose other end does not answer: packets to silentIP are lost.
	lines = append(lines, "link add cable0 type veth peer name cable1", "link set cable0 up", "link set cable1 up",
		"addr add 10.99.0.1/24 dev cable0", "neigh add "+silentIP+" lladdr 02:00:00:00:00:07 dev cable0")
	batch := exec.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := batch.CombinedOutput(); err != nil {
		return fmt.Errorf("make a network: %w: %s", err, out)
	}
	file, err := os.CreateTemp("", "warmroute-hosts-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.Write(names(podIPs...)); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if err := syscall.Mount("", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := syscall.Mount(file.Name(), "/etc/hosts", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /etc/hosts: %w", err)
	}
	return nil
}
