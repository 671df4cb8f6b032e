package sessions_test

import "testing"

// TestPriceFalls: a prompt that costs 30 s when it comes, of which 20 are saved at most, goes when its
// price has fallen to these, as of its first attempt: all of the cache takes 100 s, so after 700 s it
// is half.
func TestPriceFalls(t *testing.T) {
	for _, again := range []bool{false, true} {
		o := open(t, 1)
		o.send(text{{1, 64_000}})
		_, k := o.hold(text{{2, 90_000}})
		if o.pass(300); again {
			k.Leave(o.now)
			_, k = o.hold(text{{2, 90_000}})
		}
		if o.pass(49); o.wake() != 1 || ready(k) {
			t.Fatalf("again %v: it goes too soon", again)
		}
		if o.pass(2); o.wake() != 1 || !ready(k) {
			t.Errorf("again %v: it still waits: %+v", again, k.Wait(o.now))
		}
	}
}
