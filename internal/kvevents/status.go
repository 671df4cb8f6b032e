package kvevents

import (
	"time"

	"warmroute/prefixhash"
)

// Status is a subscriber's state at one moment.
type Status struct {
	Connected bool   `json:"connected"` // the event socket is up
	Synced    bool   `json:"synced"`    // the first catch-up is over: history was replayed, or cannot be had
	Complete  bool   `json:"complete"`  // everything published since the publisher's start has been applied
	LastSeq   uint64 `json:"last_seq"`  // last sequence applied; see HasSeq
	HasSeq    bool   `json:"has_seq"`   // at least one batch of this incarnation was applied

	NoReplay string `json:"no_replay,omitempty"` // why the last replay failed or told nothing, each time that it was requested; "" = it did not

	Paused time.Duration `json:"paused,omitempty"` // how long the publisher is not followed, because of too many troubles; 0 while it is

	Incarnation uint64           `json:"incarnation"`       // the result of the Sink's last Begin
	LastBatch   time.Time        `json:"last_batch"`        // when the last batch was applied, by the router's clock; zero before the first
	Hashes      *prefixhash.VLLM `json:"hashes,omitempty"`  // the configuration that computes the published hashes; nil: not found
	Doubt       string           `json:"doubt,omitempty"`   // why the events may not tell everything that the publisher holds
	Refused     string           `json:"refused,omitempty"` // why a batch could not be decoded, of the last such
	Said        int              `json:"said"`              // data_parallel_rank of the last batch; -1: it had none
	LastError   string           `json:"last_error"`        // the last trouble with sockets, payloads or the Sink; kept after recovery

	Counters
}

// Counters only ever rise, over the life of one Subscriber.
type Counters struct {
	Connects uint64 `json:"connects"` // event socket connections made
	Batches  uint64 `json:"batches"`  // batches applied
	Events   uint64 `json:"events"`   // events in them
	Contents
	Gaps     uint64 `json:"gaps"`     // holes seen in the sequence
	Lost     uint64 `json:"lost"`     // holes that could not be filled: the Sink was made to forget
	Restarts uint64 `json:"restarts"` // the publisher began a new life: the Sink was made to forget
	Repeats
	Rejected     uint64 `json:"rejected"`      // payloads that could not be decoded, applied in no part
	Malformed    uint64 `json:"malformed"`     // messages without a sequence
	Pauses       uint64 `json:"pauses"`        // times at which following the publisher was interrupted
	ApplyErrors  uint64 `json:"apply_errors"`  // batches the Sink refused, in part or whole
	OrphanBlocks uint64 `json:"orphan_blocks"` // stored blocks that the Sink left out, as it did not know their parent
}

// Contents count what applied batches contain.
type Contents struct {
	BlocksStored  uint64 `json:"blocks_stored"`  // block hashes in applied BlockStored events
	BlocksRemoved uint64 `json:"blocks_removed"` // block hashes in applied BlockRemoved events
	Clears        uint64 `json:"clears"`         // AllBlocksCleared
	UnknownEvents uint64 `json:"unknown_events"` // events of an unknown tag, skipped
	Unkeyed       uint64 `json:"unkeyed"`        // BlockStored without this project's keys: its token ids do not cover its hashes
	Placeholders  uint64 `json:"placeholders"`   // BlockStored of a lower tier with hashes alone
}

func (c *Contents) add(n Contents) {
	c.BlocksStored += n.BlocksStored
	c.BlocksRemoved += n.BlocksRemoved
	c.Clears += n.Clears
	c.UnknownEvents += n.UnknownEvents
	c.Unkeyed += n.Unkeyed
	c.Placeholders += n.Placeholders
}

// Repeats count what comes again.
type Repeats struct {
	Duplicates  uint64 `json:"duplicates"`   // batches seen both live and replayed, applied once
	Replays     uint64 `json:"replays"`      // replay requests sent
	ReplayFails uint64 `json:"replay_fails"` // replays without an end marker
	Replayed    uint64 `json:"replayed"`     // batches that came by replay
}
