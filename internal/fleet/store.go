package fleet

import "slices"

// storeConnectors keep blocks only in a store that all replicas with the connector read.
var storeConnectors = []string{"MooncakeStoreConnector", "HF3FSKVConnector"}

// NoStore is the configured name of the shared store of a replica that has none, whatever
// its connector and its events show.
const NoStore = "none"

// storeOf returns the name of the store that a replica shares: as configured, or its
// connector's.
func storeOf(configured, connector string) string {
	switch {
	case configured != "":
		return configured
	case slices.Contains(storeConnectors, connector):
		return connector
	}
	return ""
}

// OnlyShared reports whether all blocks of the replica that are not on its GPU are in a
// store that other replicas read too, whatever its events call it.
func (r *Replica) OnlyShared() bool {
	return r.Store != NoStore && slices.Contains(storeConnectors, r.Transfer.Connector)
}
