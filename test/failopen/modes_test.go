package failopen

import (
	"fmt"
	"testing"
	"time"

	"warmroute/envoy"
)

// TestModes is the table of docs/fail-open.md: the cost of a killed and of a frozen
// router in every body mode, and the effect of a standby instance.
func TestModes(t *testing.T) {
	if !*long {
		t.Skip("the long form's: make test-failopen")
	}
	var table string
	for _, c := range []struct {
		mode    envoy.Mode
		standby bool
		loses   bool // requests in flight
	}{
		{mode: envoy.Buffered}, {mode: envoy.BufferedPartial}, {mode: streamed}, {mode: envoy.FullDuplex, loses: true},
		{mode: envoy.Buffered, standby: true}, {mode: envoy.FullDuplex, standby: true, loses: true},
	} {
		name := string(c.mode)
		if c.standby {
			name += ", standby"
		}
		t.Run(name, func(t *testing.T) {
			s := start(t, options{mode: c.mode, standby: c.standby})
			for _, f := range []struct {
				name        string
				apply, heal func(*stack)
			}{
				{"killed", kill, func(s *stack) { s.router.start() }},
				{"frozen", freeze, thaw},
			} {
				const span = 4 * time.Second
				hinted := s.standbyHints()
				broken := closedLoop(t, s.envoy.URL, span, func() { f.apply(s) })
				hinted = s.standbyHints() - hinted
				healed := closedLoop(t, s.envoy.URL, span/2, func() { f.heal(s) })
				s.found()
				t.Logf("%s: %v", f.name, broken)
				t.Logf("over: %v", healed)
				table += row(name, f.name, broken, hinted)
				lost := broken.failed + broken.cut
				if healed.failed+healed.cut > 0 || !c.loses && lost > 0 {
					t.Errorf("%s: requests were lost", f.name)
				}
				if c.loses && lost == 0 {
					t.Errorf("%s: nothing was lost: Envoy has learnt to fail open, say so in docs/fail-open.md", f.name)
				}
				// Each client loses the request it has under way and perhaps one or two until Envoy detects it.
				if lost > 3*clients {
					t.Errorf("%s: %d requests were lost, more than were in flight", f.name, lost)
				}
				if c.standby && hinted == 0 {
					t.Errorf("%s: the standby gave no hint", f.name)
				}
			}
		})
	}
	t.Logf("\n| Body mode | The router is | requests | failed | cut | failing from, to | p99 | max | hinted by the standby |\n|---|---|---|---|---|---|---|---|---|\n%s", table)
}

func row(mode, fault string, r result, hinted int) string {
	span := "none"
	if r.failed > 0 {
		span = fmt.Sprintf("%d ms, %d ms", r.first.Milliseconds(), r.last.Milliseconds())
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %s | %d ms | %d ms | %d |\n", mode, fault, r.requests, r.failed, r.cut, span,
		r.p99.Milliseconds(), r.max.Milliseconds(), hinted)
}

// standbyHints is how many requests the standby has named a replica for.
func (s *stack) standbyHints() int {
	if s.standby == nil {
		return 0
	}
	return s.standby.hints()
}
