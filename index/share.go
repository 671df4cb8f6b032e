package index

// minShare is the number of scopes that a replica can always make: more than the adapters
// that an engine keeps loaded, and a sixteenth of DefaultMaxScopes.
const minShare = 64

// share is a replica's part of the scopes.
type share struct {
	made    int    // existing scopes that the replica was the first to name
	refused uint64 // times that a scope of the replica was refused
	removed bool   // the replica is not known any more
}

// ScopeShare is a replica's part of the scopes.
type ScopeShare struct {
	Made    int    // existing scopes that the replica was the first to name
	Refused uint64 // times that a scope of the replica was refused: its blocks are not indexed
	Full    bool   // its next scope would be refused
}

// ScopeShare returns a replica's part of the scopes.
func (x *Index) ScopeShare(replica string) ScopeShare {
	x.mu.Lock()
	defer x.mu.Unlock()
	sh := x.shares[replica]
	if sh == nil {
		return ScopeShare{}
	}
	return ScopeShare{Made: sh.made, Refused: sh.refused, Full: x.shareFull(sh, len(*x.keyspaces.Load()))}
}

// shareFull reports whether a replica's next scope is refused. The first half of the scopes
// goes to every replica that asks. Of the other half a replica has its share alone, so
// made-up adapters and block sizes of one replica leave half of the scopes to the others.
func (x *Index) shareFull(sh *share, scopes int) bool {
	return scopes >= x.o.MaxScopes || scopes*2 >= x.o.MaxScopes && sh.made >= max(minShare, x.o.MaxScopes/16)
}

// admitScope counts a scope for a replica, or its refusal. x.mu is held.
func (x *Index) admitScope(replica string, scopes int) bool {
	sh := x.shares[replica]
	if sh == nil {
		sh = new(share)
		x.shares[replica] = sh
	}
	sh.removed = false
	if x.shareFull(sh, scopes) {
		sh.refused++
		return false
	}
	sh.made++
	return true
}

// returnScope counts a dropped scope of a replica. x.mu is held.
func (x *Index) returnScope(replica string) {
	sh := x.shares[replica]
	if sh.made--; sh.made == 0 && sh.removed {
		delete(x.shares, replica)
	}
}

// forgetShare drops the counts of a removed replica once its scopes are dropped. x.mu is
// held.
func (x *Index) forgetShare(replica string) {
	sh := x.shares[replica]
	if sh == nil {
		return
	}
	if sh.removed = true; sh.made == 0 {
		delete(x.shares, replica)
	}
}
