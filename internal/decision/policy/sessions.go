package policy

// Full says what happens to a request that would be held while the queue is full.
type Full string

// What happens to such a request.
const (
	Refuse Full = "refuse" // it is answered 429
	Pass   Full = "pass"   // it goes on as if nothing were held
)

// Sessions say how requests of a model are held. The zero value holds none, and costs nothing.
type Sessions struct {
	Share float64 // of a replica's time that cold prompts may take from the caches of others; 0 = off
	Queue int     // the most requests that are held; 0 = as many as come
	Full  Full    // "" = Refuse
}

// On reports whether requests are held.
func (s *Sessions) On() bool { return s.Share > 0 }
