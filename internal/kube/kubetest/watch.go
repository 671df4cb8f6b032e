package kubetest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// selection is the objects that a request selects.
type selection struct {
	folder string // path without the name
	labels map[string]string
	name   string // "": any
}

func selected(u *url.URL) selection {
	q := u.Query()
	sel := selection{folder: u.Path + "/", labels: map[string]string{}}
	for term := range strings.SplitSeq(q.Get("labelSelector"), ",") {
		if key, value, ok := strings.Cut(term, "="); ok {
			sel.labels[key] = value
		}
	}
	sel.name, _ = strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	return sel
}

func (sel selection) matches(path string, o Object) bool {
	name, ok := strings.CutPrefix(path, sel.folder)
	if o == nil || !ok || sel.name != "" && sel.name != name {
		return false
	}
	labels, _ := o["metadata"].(Object)["labels"].(Object)
	for key, value := range sel.labels {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	sel := selected(r.URL)
	s.mu.Lock()
	items, version := s.matching(sel), s.version
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Object{
		"kind": "List", "apiVersion": "v1", "metadata": Object{"resourceVersion": strconv.Itoa(version)}, "items": items,
	})
}

// matching needs s.mu.
func (s *Server) matching(sel selection) []Object {
	items := []Object{}
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if o := s.objects[path]; sel.matches(path, o) {
			items = append(items, o)
		}
	}
	return items
}

// stream is one open watch.
type stream struct {
	server *Server
	out    http.ResponseWriter
	sel    selection
	at     int // the last version sent
	cut    int
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, faults Faults) {
	q := r.URL.Query()
	initial := q.Get("sendInitialEvents") == "true"
	if initial && faults.NoStreamLists {
		refuse(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	st := &stream{server: s, out: w, sel: selected(r.URL), at: from, cut: s.cut}
	var first []Object
	if initial || from == 0 {
		first, st.at = s.matching(st.sel), s.version
	}
	gone := st.at < s.oldest
	s.watches++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.watches--
		s.mu.Unlock()
	}()
	if gone && !faults.LateGone {
		refuse(w, http.StatusGone, "Expired")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if gone {
		st.write("ERROR", failure(http.StatusGone, "Expired"))
		return
	}
	for _, o := range first {
		st.write("ADDED", o)
	}
	if initial {
		st.bookmark(st.at, Object{"k8s.io/initial-events-end": "true"})
	}
	st.follow(r)
}

// follow sends changes until the client disconnects or the watch is cut.
func (st *stream) follow(r *http.Request) {
	s := st.server
	for {
		_ = http.NewResponseController(st.out).Flush()
		s.mu.Lock()
		i, _ := slices.BinarySearchFunc(s.history, st.at+1, func(c change, v int) int { return c.version - v })
		changes, news, cut := slices.Clone(s.history[i:]), s.news, s.cut > st.cut
		s.mu.Unlock()
		for _, c := range changes {
			st.send(c)
		}
		switch {
		case cut:
			return
		case len(changes) > 0:
			continue
		}
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

func (st *stream) send(c change) {
	st.at = c.version
	was, is := st.sel.matches(c.path, c.old), st.sel.matches(c.path, c.new)
	switch {
	case c.path == "":
		st.bookmark(c.version, nil)
	case was && is:
		st.write("MODIFIED", c.new)
	case is:
		st.write("ADDED", c.new)
	case was && c.new != nil: // it matches no more
		st.write("DELETED", c.new)
	case was:
		st.write("DELETED", c.old)
	}
}

// bookmark sends an object of the watched kind with nothing but a version.
func (st *stream) bookmark(version int, annotations Object) {
	kind, api := "Pod", "v1"
	if strings.HasSuffix(st.sel.folder, "/inferencepools/") {
		kind, api = "InferencePool", strings.Join(strings.Split(st.sel.folder, "/")[2:4], "/")
	}
	meta := Object{"resourceVersion": strconv.Itoa(version)}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	st.write("BOOKMARK", Object{"kind": kind, "apiVersion": api, "metadata": meta})
}

func (st *stream) write(kind string, o Object) {
	_ = json.NewEncoder(st.out).Encode(Object{"type": kind, "object": o}) // the client has gone
}
