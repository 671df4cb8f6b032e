package peers

import (
	"maps"
	"slices"
	"time"

	"warmroute/internal/load"
)

// Stats count a machine's work.
type Stats struct {
	Sent      uint64 `json:"sent"` // messages
	SentBytes uint64 `json:"sent_bytes"`
	Read      uint64 `json:"read"`
	ReadBytes uint64 `json:"read_bytes"`
	Garbage   uint64 `json:"garbage"`   // messages, or settings in them, that cannot be read
	Refused   uint64 `json:"refused"`   // messages of another version, of another router with this name, of too many routers; settings with a version too far ahead
	Unwritten uint64 `json:"unwritten"` // messages that could not be written
	Expired   uint64 `json:"expired"`   // routers that fell silent
	Policies  uint64 `json:"policies"`  // settings taken over from another router
}

// PeerStats count the messages of one router.
type PeerStats struct {
	Read  uint64 `json:"messages"`
	Bytes uint64 `json:"bytes"`
	Gaps  uint64 `json:"gaps"`  // messages before which others were missed
	Asked uint64 `json:"asked"` // full messages requested from it
}

// PeerState is another router by its last message.
type PeerState struct {
	ID       string        `json:"id"`
	Silent   time.Duration `json:"silent_ns"` // since its last message
	Complete bool          `json:"complete"`  // nothing is missing since its last full message
	RTT      time.Duration `json:"rtt_ns"`    // 0 = not measured yet
	InFlight load.Share    `json:"load"`
	Policy   uint64        `json:"policy_version"`
	PeerStats
}

// State is a machine's state for an operator.
type State struct {
	ID       string      `json:"id"`
	Policy   uint64      `json:"policy_version"` // 0 = no change at run time
	PolicyBy string      `json:"policy_by,omitempty"`
	Peers    []PeerState `json:"peers"` // by id
	Stats    Stats       `json:"stats"`
}

// State describes the machine.
func (m *Machine) State(now time.Time) State {
	s := State{ID: m.o.ID, Policy: m.policy.number, PolicyBy: m.policy.by, Stats: m.stats, Peers: []PeerState{}}
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		p := m.peers[id]
		one := PeerState{ID: id, Silent: now.Sub(p.lastMessage), Complete: p.complete, RTT: p.rtt, PeerStats: p.stats, Policy: p.policy.number}
		for _, share := range p.shares {
			one.InFlight.Requests += share.Requests
			one.InFlight.Awaiting += share.Awaiting
			one.InFlight.Pending += share.Pending
			one.InFlight.Live += share.Live
		}
		s.Peers = append(s.Peers, one)
	}
	return s
}

// Missing lists the routers that fell silent without a farewell message, by name.
func (m *Machine) Missing() []string { return slices.Sorted(maps.Keys(m.missing)) }
