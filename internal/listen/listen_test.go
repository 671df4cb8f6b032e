package listen

import "testing"

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
