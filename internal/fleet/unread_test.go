package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnread: requests of a page that is as old as a silent replica may be do not count for ever,
// and a note says why there is no newer one, also where there never was one.
func TestUnread(t *testing.T) {
	tests := map[string]struct {
		breaks func(*fakeReplica)
		owner  string
		want   string // in the note; "": no note
	}{
		"hangs":       {breaks: func(r *fakeReplica) { r.slow["/metrics"] = true }, want: a + " (timeout: "},
		"needs a key": {breaks: func(r *fakeReplica) { r.status["/metrics"] = 401 }, want: a + " (unauthorized: "},
		"too long": {breaks: func(r *fakeReplica) {
			r.answer["/metrics"] = strings.Repeat("#"+strings.Repeat(" ", 4094)+"\n", maxPageBytes/4096+1)
		}, want: "larger than the limit"},
		"without series":            {breaks: func(r *fakeReplica) { r.answer["/metrics"] = "process_x 1\n" }, owner: "vllm", want: "none of vLLM's series"},
		"a login page":              {breaks: func(r *fakeReplica) { r.answer["/metrics"] = "<html></html>" }, owner: "vllm", want: "none of vLLM's series"},
		"another engine's series":   {breaks: func(r *fakeReplica) { r.answer["/metrics"] = "llamacpp:x 1\n" }, owner: "llamacpp"},
		"a vLLM without":            {breaks: func(r *fakeReplica) { delete(r.answer, "/metrics") }, owner: "vllm", want: "404"},
		"an engine that needs none": {breaks: func(r *fakeReplica) { delete(r.answer, "/metrics") }, owner: "llamacpp"},
	}
	for name, tt := range tests {
		for _, when := range []string{"from the start", "later"} {
			if when == "later" && name == "too long" { // the race detector is slow at such pages
				continue
			}
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := fake(1, 0)
					r.answer["/v1/models"] = `{"data":[{"id":"m","root":"/m","owned_by":"` + tt.owner + `"}]}`
					r.answer["/metrics"] = counted(60, 20, 4, 0.9) + "vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"sql\",waiting_lora_adapters=\"\"} 1\n"
					if when != "later" {
						tt.breaks(r)
					}
					w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
					w.pass(2 * time.Second)
					if when == "later" {
						if l, ok := w.fleet.Snapshot().Replica(a).LoadOf(0); !ok || l.Running != 60 || len(l.LoRAs) != 1 || len(w.fleet.Snapshot().Notes) > 0 {
							t.Fatalf("%+v, notes %q", l, w.fleet.Snapshot().Notes)
						}
						w.net.change(func() { tt.breaks(r) })
					}
					w.pass(learnEvery + 6*time.Second)
					s := w.fleet.Snapshot()
					if l, _ := s.Replica(a).LoadOf(0); l.Running+l.Waiting+l.KVUsage != 0 || len(l.LoRAs) > 0 || !s.Replica(a).Ready {
						t.Errorf("%+v", s.Replica(a))
					}
					if notes := strings.Join(s.Notes, "\n"); (tt.want == "") != (notes == "") || !strings.Contains(notes, tt.want) {
						t.Errorf("notes %q, want %q", notes, tt.want)
					}
					w.net.change(func() {
						delete(r.slow, "/metrics")
						delete(r.status, "/metrics")
						r.answer["/metrics"] = counted(60, 20, 5, 0.9)
					})
					w.pass(learnEvery + 3*time.Second)
					if s := w.fleet.Snapshot(); len(s.Notes) > 0 || s.Replica(a).Load[0].Running != 60 {
						t.Errorf("afterwards: %+v, notes %q", s.Replica(a).Load, s.Notes)
					}
				})
			})
		}
	}
}

// TestMoreModelsThanAreRead: a replica with too many adapters serves those that are read.
func TestMoreModelsThanAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		var models strings.Builder
		models.WriteString(`{"object":"list","data":[{"id":"m","root":"/m"}`)
		for i := range 2 * MaxModels {
			fmt.Fprintf(&models, `,{"id":"l%d","root":"/l","parent":"m","permission":[%q]}`, i, strings.Repeat("x", maxAnswer/MaxModels/2))
		}
		r.answer["/v1/models"] = models.String() + "]}" // of more than maxAnswer
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.pass(2 * time.Second)
		s := w.fleet.Snapshot()
		last := s.Replica(a).Model(fmt.Sprintf("l%d", MaxModels-2))
		if !s.Replica(a).Ready || len(s.Replica(a).Models) != MaxModels || last == nil || last.Base != "m" || len(s.Notes) != 1 || !strings.Contains(s.Notes[0], a+" (4096 models)") {
			t.Errorf("%d models, the last %+v, notes %q", len(s.Replica(a).Models), last, s.Notes)
		}
	})
}

// TestAReplicaThatRefusesItsModels: a replica whose API key is another one than the router's stays, and a
// note says that its models are not read, until they are.
func TestAReplicaThatRefusesItsModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		noted := func(when string, want bool) {
			t.Helper()
			w.pass(3 * time.Second)
			s := w.fleet.Snapshot()
			if got := strings.Contains(strings.Join(s.Notes, "\n"), "fleet.token_file: "+a+" (unauthorized: "); got != want || s.Ready != 1 {
				t.Errorf("%s: ready %d, notes %q", when, s.Ready, s.Notes)
			}
		}
		noted("at first", false)
		w.net.change(func() { r.status["/v1/models"] = 401 })
		noted("another key", true)
		w.net.change(func() { r.status["/v1/models"] = 503 })
		noted("a failure", false)
		w.net.change(func() { r.status["/v1/models"] = 401 })
		noted("another key again", true)
		w.net.change(func() { clear(r.status) })
		noted("the key is right", false)
		w.expect("joined " + a + " 1")
	})
}
