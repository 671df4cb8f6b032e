package kubetest

import (
	"net/url"
	"slices"
	"strings"
)

// Enforce lets through only the requests that a Role allows; nil allows everything. As in
// a cluster, a rule with resourceNames allows lists and watches that ask for one of these
// names by field selector.
func (s *Server) Enforce(role Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.role = role
}

func allows(role Object, verb string, u *url.URL) bool {
	if role == nil {
		return true
	}
	parts := strings.Split(strings.TrimPrefix(u.Path, "/"), "/") // api v1 namespaces NS pods, or apis GROUP v1 …
	group := ""
	if parts[0] == "apis" {
		group = parts[1]
	}
	rules, _ := role["rules"].([]any)
	for _, rule := range rules {
		r, _ := rule.(Object)
		names, _ := r["resourceNames"].([]any)
		if has(r["apiGroups"], group) && has(r["resources"], parts[len(parts)-1]) && has(r["verbs"], verb) &&
			(len(names) == 0 || slices.Contains(names, any(selected(u).name))) {
			return true
		}
	}
	return false
}

func has(list any, want string) bool {
	values, _ := list.([]any)
	return slices.Contains(values, any(want))
}
