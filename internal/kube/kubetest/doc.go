// Package kubetest stands in for a Kubernetes API server, for tests: objects that
// can be listed and watched over TLS, and the ways in which that fails. It shares
// no code with the client library.
//
// It implements: every change has a resource version that rises; a list contains
// the version at which it was taken; a watch sends every change after the version
// it names, or answers 410 when that version is no longer kept; an object that
// stops matching a watch's selector is deleted for that watch; bookmarks;
// streaming lists (sendInitialEvents) if they are on; a Role, if one is enforced.
// It leaves out: writing over HTTP, paging, server-side schemas.
//
// Everything is safe for concurrent use.
package kubetest
