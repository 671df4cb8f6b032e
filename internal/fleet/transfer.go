package fleet

import "strings"

// Transfer is how a replica hands KV blocks to others.
type Transfer struct {
	Connector string `json:"connector,omitempty"` // vLLM's name of its KV connector, e.g. "NixlConnector"; "" = none is known
	From      string `json:"from,omitempty"`      // where the connector was found: one of the constants below; "" = nowhere
}

// The places where a connector is found.
const (
	FoundInConfiguration = "configuration"
	FoundInMetrics       = "metrics"
)

// Nixl is vLLM's connector that brings tokens from other replicas. Its kv_transfer_params are
// those that the mode pull carries.
const Nixl = "NixlConnector"

// NoConnector is the configured name of a connector for a replica that has none,
// whatever it reports.
const NoConnector = "none"

// validConnector reports whether s can be the name of a connector: a Python class, or
// several names of one that are joined by dots.
func validConnector(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_."
	return len(s) <= 128 && strings.Trim(s, letters) == ""
}

// configuredTransfer returns the connector that the configuration names.
func configuredTransfer(o ReplicaOptions) Transfer {
	switch o.KVConnector {
	case "":
		return Transfer{}
	case NoConnector:
		return Transfer{From: FoundInConfiguration}
	}
	return Transfer{Connector: o.KVConnector, From: FoundInConfiguration}
}

// transfer returns the replica's KV connector: as configured, else by its metrics. before has what
// was found last, for a page that fails for now; it is a flag of the process.
func (w *worker) transfer(before *learned) Transfer {
	t := configuredTransfer(w.options)
	switch {
	case t.From != "":
	case w.page.connector != "":
		t = Transfer{Connector: w.page.connector, From: FoundInMetrics}
	case before != nil:
		t = before.Transfer
	}
	return t
}
