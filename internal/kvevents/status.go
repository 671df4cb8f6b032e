package kvevents

import "time"

// Status is what a subscriber knows about itself at one moment.
type Status struct {
	Connected bool   // the event socket is up
	Synced    bool   // the first catch-up is over: history was replayed, or cannot be had
	Complete  bool   // everything published since the publisher's start has been applied
	LastSeq   uint64 // last sequence applied; see HasSeq
	HasSeq    bool   // at least one batch of this incarnation was applied

	Incarnation uint64    // what the Sink's last Begin returned
	LastBatch   time.Time // when the last batch was applied, our clock; zero before the first
	LastError   string    // the last trouble with sockets, payloads or the Sink; kept after recovery

	Counters
}

// Counters only ever rise, over the life of one Subscriber.
type Counters struct {
	Connects uint64 // event socket connections made
	Batches  uint64 // batches applied
	Events   uint64 // events in them

	BlocksStored  uint64 // block hashes in applied BlockStored events
	BlocksRemoved uint64 // block hashes in applied BlockRemoved events
	Clears        uint64 // AllBlocksCleared
	UnknownEvents uint64 // events of an unknown tag, skipped
	Unkeyed       uint64 // BlockStored without keys of ours: its token ids do not cover its hashes
	Placeholders  uint64 // BlockStored of a lower tier that describe nothing, skipped

	Gaps         uint64 // holes seen in the sequence
	Lost         uint64 // holes that could not be filled: the Sink was made to forget
	Restarts     uint64 // the publisher began a new life: the Sink was made to forget
	Duplicates   uint64 // batches seen both live and replayed, applied once
	Replays      uint64 // replay requests sent
	ReplayFails  uint64 // of them, how many did not end with the end marker
	Replayed     uint64 // batches that came by replay
	Rejected     uint64 // payloads that could not be decoded, applied in no part
	Malformed    uint64 // messages without a sequence
	Overflow     uint64 // live batches dropped because a replay took too long; replayed later
	ApplyErrors  uint64 // batches the Sink refused, in part or whole
	OrphanBlocks uint64 // stored blocks whose parent the Sink did not know yet
}
