package listen

import "testing"

// TestHostPort: one sentence says how an address is written.
func TestHostPort(t *testing.T) {
	const like = "; an IPv6 address is written like "
	for addr, want := range map[string]string{
		"127.0.0.1:0": "", "[::1]:1": "", "router:65535": "", ":1": "",
		"::1:8000":           `"::1:8000" is not host:port` + like + `"[::1]:8000"`,
		"fd00::2:9002":       `"fd00::2:9002" is not host:port` + like + `"[fd00::2]:9002"`,
		"fd00::2:18000":      `"fd00::2:18000" is not host:port` + like + `"[fd00::2]:18000"`,
		"fd00::2":            `"fd00::2" is not host:port` + like + `"[fd00::2]:8000"`,
		"[fd00::2]":          `"[fd00::2]" is not host:port`,
		"10.0.0.1":           `"10.0.0.1" is not host:port`,
		"10.0.0.1:1:2":       `"10.0.0.1:1:2" is not host:port`,
		"":                   `"" is not host:port`,
		"router:http":        `"router:http" has no port between 0 and 65535`,
		"127.0.0.1:65536":    `"127.0.0.1:65536" has no port between 0 and 65535`,
		"0:0:0:0:0:0:0:1:80": `"0:0:0:0:0:0:0:1:80" is not host:port` + like + `"[0:0:0:0:0:0:0:1]:80"`,
	} {
		got := ""
		if err := HostPort(addr); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s, want %s", addr, got, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LOCALHOST": true, "::1": true, "127.0.0.1": true,
		":1": false, "": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "router:1": false, "localhost.example:1": false,
	} {
		if got := Loopback(addr); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
}
