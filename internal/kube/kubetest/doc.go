// Package kubetest stands in for a Kubernetes API server, for tests: objects
// that can be listed and watched over TLS, and the ways in which that
// fails. It shares no code with the client library.
//
// What it keeps to: every change has a resource version that rises; a list says
// at which version it was taken; a watch tells every change after the version it
// names, or answers 410 when that is forgotten; an object that stops matching a
// watch's selector is a deletion to it; bookmarks; streaming lists
// (sendInitialEvents) where they are on; a Role, where one is enforced. What it leaves out: writing over HTTP,
// paging, server-side schemas.
//
// Everything is safe for concurrent use.
package kubetest
