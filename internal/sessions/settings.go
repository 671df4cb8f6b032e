package sessions

import "warmroute/internal/decision/policy"

// Settings say how requests of one model are held.
type Settings = policy.Sessions

// Full says what happens to a request that would be held while the queue is full.
type Full = policy.Full

// What happens to such a request.
const (
	Refuse = policy.Refuse
	Pass   = policy.Pass
)
