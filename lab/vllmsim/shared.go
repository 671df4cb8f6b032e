package vllmsim

import (
	"encoding/hex"
	"os"
	"path/filepath"
)

// A replica with the connector Shared writes every block that it computes to a folder,
// and looks there for the blocks that its own cache lacks. A block is a file without
// content, by the name of its hash: two replicas share blocks if they have one root of
// hashes.

func (e *engine) sharedFile(d digest) string {
	return filepath.Join(e.o.SharedFolder, hex.EncodeToString(d.b[:d.n]))
}

// storedLocked returns how many tokens of s the folder has after a hit. The engine always
// computes the last token, for its logits.
func (e *engine) storedLocked(s *sequence, h hit) int {
	if e.o.Connector != Shared || s.noRead {
		return 0
	}
	from := h.tokens / e.unit
	to := from
	for (to+1)*e.unit < len(s.tokens) {
		if _, err := os.Stat(e.sharedFile(s.hashes[to])); err != nil {
			break
		}
		to++
	}
	return (to - from) * e.unit
}

// saveLocked writes the blocks that this step has computed, before anyone hears of them.
// A block that cannot be written is not shared, as in vLLM.
func (e *engine) saveLocked() {
	if e.o.Connector != Shared {
		return
	}
	for _, ev := range e.pool.events {
		if ev.kind != blockStored {
			continue
		}
		for _, d := range ev.hashes {
			_ = os.WriteFile(e.sharedFile(d), nil, 0o600)
		}
	}
}
