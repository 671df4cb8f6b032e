package kubetest

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Object is a Kubernetes object, decoded from JSON.
type Object = map[string]any

// Token is the bearer token that the server requires.
const Token = "kubetest"

// Server is a running stand-in; make it with New.
type Server struct {
	URL  string
	http *httptest.Server

	mu      sync.Mutex
	version int               // of the last change
	oldest  int               // watches from before it get 410
	objects map[string]Object // by path, name included
	history []change          // ascending by version
	news    chan struct{}     // closed at each change of anything below or above
	cut     int               // watches begun before the cut-th disconnection end
	faults  Faults
	role    Object         // nil: everything is allowed
	counts  map[string]int // requests by verb and resource, "watch pods"
	watches int            // open now
	conns   int            // likewise
}

// Faults are the failures of the server; the zero value is none.
type Faults struct {
	Down          bool   // connections break without an answer
	Status        int    // every request gets this
	NoStreamLists bool   // sendInitialEvents is refused, as before Kubernetes 1.32
	LateGone      bool   // 410 comes as an event of the watch, not as its status
	NotServed     string // requests for this resource, e.g. "inferencepools", get 404
	Forbidden     string // requests for this resource get 403
}

// change is one step of the history.
type change struct {
	version  int
	path     string // of the object; "" is a bookmark for all watches
	old, new Object // nil: the object did not exist before, or does not exist after
}

// New starts a server that ends with the test.
func New(t testing.TB) *Server {
	s := &Server{objects: map[string]Object{}, news: make(chan struct{}), counts: map[string]int{}, version: 100, oldest: 100}
	s.http = httptest.NewUnstartedServer(s)
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that give up a handshake
	s.http.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state {
		case http.StateNew:
			s.conns++
		case http.StateClosed, http.StateHijacked:
			s.conns--
		}
	}
	s.http.StartTLS()
	s.URL = s.http.URL
	t.Cleanup(func() {
		s.Disconnect()
		s.http.Close()
	})
	return s
}

// Kubeconfig writes a kubeconfig with the server, its token and a namespace.
func (s *Server) Kubeconfig(t testing.TB, namespace string) string {
	t.Helper()
	file := t.TempDir() + "/kubeconfig"
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: test, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: test, namespace: %s}}]
`, s.URL, base64.StdEncoding.EncodeToString(authority), Token, namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Parse reads the objects of a YAML file's text.
func Parse(t testing.TB, text string) []Object {
	t.Helper()
	var out []Object
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o Object
		if err := dec.Decode(&o); err != nil {
			if len(out) == 0 {
				t.Fatalf("no objects: %v", err)
			}
			return out
		}
		out = append(out, clone(o))
	}
}

// Put creates or replaces objects.
func (s *Server) Put(objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		o = clone(o)
		path := pathOf(o)
		s.version++
		o["metadata"].(Object)["resourceVersion"] = strconv.Itoa(s.version)
		s.history = append(s.history, change{s.version, path, s.objects[path], o})
		s.objects[path] = o
	}
	s.notify()
}

// Delete removes existing objects.
func (s *Server) Delete(objects ...Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		path := pathOf(o)
		if old := s.objects[path]; old != nil {
			s.version++
			gone := clone(old)
			gone["metadata"].(Object)["resourceVersion"] = strconv.Itoa(s.version)
			s.history = append(s.history, change{s.version, path, gone, nil})
			delete(s.objects, path)
		}
	}
	s.notify()
}

// Bookmark sends every watch the current version.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.history = append(s.history, change{version: s.version})
	s.notify()
}

// Forget drops the history: a watch from before now gets 410.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
}

// Disconnect ends all watches.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut++
	s.notify()
}

// Fail sets the faults from now on. Open watches go on.
func (s *Server) Fail(f Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// Count returns the number of requests of a kind, e.g. "list pods".
func (s *Server) Count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[what]
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watches
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

// notify wakes the watches; it needs s.mu.
func (s *Server) notify() {
	close(s.news)
	s.news = make(chan struct{})
}

// pathOf returns the API path of an object. It panics on a value that is not an object.
func pathOf(o Object) string {
	meta := o["metadata"].(Object)
	prefix := "/apis/"
	if !strings.Contains(o["apiVersion"].(string), "/") {
		prefix = "/api/"
	}
	return fmt.Sprintf("%s%s/namespaces/%s/%ss/%s", prefix, o["apiVersion"], meta["namespace"], strings.ToLower(o["kind"].(string)), meta["name"])
}

func clone(o Object) Object {
	raw, err := json.Marshal(o)
	var out Object
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		panic(err) // every value of YAML or of a test can be written as JSON
	}
	return out
}

// ServeHTTP answers lists and watches of one resource in one namespace.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, resource := "list", r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if v := r.URL.Query().Get("watch"); v == "true" || v == "1" {
		verb = "watch"
	}
	s.mu.Lock()
	s.counts[verb+" "+resource]++
	faults, role := s.faults, s.role
	s.mu.Unlock()
	switch {
	case faults.Down:
		panic(http.ErrAbortHandler)
	case faults.Status != 0:
		refuse(w, faults.Status, "TestFault")
	case faults.NotServed == resource:
		refuse(w, http.StatusNotFound, "NotFound")
	case faults.Forbidden == resource:
		refuse(w, http.StatusForbidden, "Forbidden")
	case r.Header.Get("Authorization") != "Bearer "+Token:
		refuse(w, http.StatusUnauthorized, "Unauthorized")
	case !allows(role, verb, r.URL):
		refuse(w, http.StatusForbidden, "Forbidden")
	case r.Method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	case verb == "watch":
		s.watch(w, r, faults)
	default:
		s.list(w, r)
	}
}

// refuse answers as the API does, with a Status object.
func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(failure(code, reason))
}

func failure(code int, reason string) Object {
	return Object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": "kubetest: " + reason}
}
