package hostile

import "testing"

// TestTheMemoryLimitIsInForce: the router says at its start which limit its heap has.
func TestTheMemoryLimitIsInForce(t *testing.T) {
	s := open(t, setup{replicas: 1, env: []string{"GOMEMLIMIT=256MiB"}})
	if n := s.logLines(`"heap_bytes":268435456`) + s.logLines("heap_bytes=268435456"); n != 1 {
		t.Errorf("%d lines name the limit of 256 MiB\n%s", n, s.router.Tail())
	}
	s.hinted()
}
