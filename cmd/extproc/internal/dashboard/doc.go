// Package dashboard is the operator's page: the fleet, the last decisions and an hour of
// history, served from the admin port.
//
// The page is embedded and sends requests to this process alone: no build step, no outside
// requests, which its Content-Security-Policy enforces. Like the records that it shows, it
// holds names, numbers and verdicts, no text of a prompt and no token ids.
//
// The invariant of History: samples are Every apart and at most Span old; a reader gets
// copies. A sample has what was counted since the one before, rank by rank, so a counter
// that falls, because a replica restarted, adds nothing and hides nothing. Only readers
// divide. Models, and so the memory, are bounded. Units: seconds, tokens, requests. History
// is safe for concurrent use.
package dashboard
