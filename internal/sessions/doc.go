// Package sessions knows who is at work with which context, and which cold prompts wait for
// room. Past the size of a replica's KV cache, prompts that nobody has cached evict the caches
// of sessions that come back seconds later; here such prompts pay for what they evict.
//
// A session is a prompt that continues one: its keys at marks (prefixhash.Marks) tell, no id is
// needed, and no text and no token id is kept. A Table holds the sessions of all models and the
// desk of every holder: the sessions that work there, and a bucket of seconds. A Ticket is a
// request that waits.
//
// The invariants: a request with at least half of its prompt cached never waits; a request is
// in the queue at most once; requests leave it in the order of their arrival, and nothing is
// sent merely because it has waited long. A holder whose size or speed is not known holds
// nothing back.
//
// A Table is also told what other routers send, end and hold: it is then the table of one router that
// sees all requests.
//
// Units: tokens, seconds of prefill. Time is the caller's: every method takes now. A Table and
// its Tickets are safe for concurrent use; nothing here waits, starts goroutines or timers.
package sessions
