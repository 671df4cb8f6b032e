package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"warmroute/internal/testenv"
)

// refusers are fronts of replicas; the one at bad answers chats with a status of its own.
type refusers struct {
	bad    atomic.Pointer[string]
	status atomic.Int32
}

func (f *refusers) before(t *testing.T, replica string) string {
	return inFront(t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if bad := f.bad.Load(); bad != nil && *bad == cameTo(r) && r.URL.Path == chatPath {
			http.Error(w, "no", int(f.status.Load()))
			return
		}
		pass.ServeHTTP(w, r)
	}).addr
}

// warmOn returns n conversations whose first turn that replica has served.
func (st *stack) warmOn(replica string, n int) (talks [][]message) {
	for i := 1; len(talks) < n; i++ {
		if a := st.chat(firstTurn(i), 4); a.status != http.StatusOK {
			st.t.Fatalf("%+v", a)
		} else if a.replica == replica {
			talks = append(talks, firstTurn(i))
		}
	}
	st.settled()
	return talks
}

// passedOver reports whether a request would pass over the replica that has refused it.
func (st *stack) passedOver(talk []message) bool {
	return strings.Contains(string(testenv.Post(st.t, "http://"+st.admin+"/debug/explain?path="+chatPath, chatBody(st.t, talk, 4)).Body), `"verdict":"refused"`)
}

// TestReplicaRefuses: a warm replica that answers 4xx to everything, by a fault of its own, keeps no
// prompt: the first attempt is refused, or the first two with a status that is the client's fault
// more often. The operator is told of the replica, and it gets its prompts again when it serves.
func TestReplicaRefuses(t *testing.T) {
	t.Parallel()
	var f refusers
	st := start(t, setup{replicas: 3, sim: fast(), front: func(sim string) string { return f.before(t, sim) }})
	bad := st.chat(firstTurn(0), 4).replica
	statuses := []int{401, 404, 403, 429, 422}
	talks := st.warmOn(bad, len(statuses)+2)
	f.bad.Store(&bad)
	for i, status := range statuses {
		f.status.Store(int32(status))
		for range 2 {
			if a := st.chat(talks[i], 4); a.status != status {
				t.Fatalf("%d: the first attempt got %+v", status, a)
			}
			if status != 422 {
				break
			}
		}
		st.until("the refusal is known", func() bool { return st.passedOver(talks[i]) })
		for range 10 {
			if a := st.chat(talks[i], 4); a.status != http.StatusOK || a.replica == bad {
				t.Fatalf("%d: a later attempt got %+v", status, a)
			}
		}
	}
	if st.passedOver(talks[len(statuses)]) {
		t.Error("a prompt that it has not refused passes it over")
	}
	typed := func(own string) []message {
		return append(slices.Clip(talks[len(statuses)+1]), message{"user", strings.Repeat(own+" once more, in other words. ", 12)})
	}
	f.status.Store(401)
	if a := st.chat(typed("Please"), 4); a.status != 401 {
		t.Fatalf("a conversation's next turn got %+v", a)
	}
	st.until("its refusal is known", func() bool { return st.passedOver(typed("Please")) })
	if a := st.chat(typed("Tell me"), 4); a.status != http.StatusOK || a.replica == bad {
		t.Errorf("typed anew, it got %+v", a)
	}
	f.status.Store(422)
	for range 2 {
		st.chat(talks[len(statuses)], 4) // 422
	}
	st.until("a note", func() bool {
		return strings.Contains(page(t, "http://"+st.admin+"/readyz"), fmt.Sprintf("replica %s has served nothing lately, and others of its model have: it answered 401 (2 times), 403 (1 times), 404 (1 times), 422 (4 times), 429 (1 times)", bad))
	})
	f.bad.Store(nil)
	if a := st.post(chatPath, chatBody(t, append(talks[len(statuses)], message{"user", "again"}), 4)); a.status != http.StatusOK || a.replica != bad {
		t.Errorf("it serves again, and its conversation gets %+v", a)
	}
	st.until("no note", func() bool { return !strings.Contains(page(t, "http://"+st.admin+"/readyz"), "has served nothing") })
}
