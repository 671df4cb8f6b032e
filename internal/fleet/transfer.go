package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Transfer is how a replica hands KV blocks to others.
type Transfer struct {
	Connector string `json:"connector,omitempty"` // vLLM's name of its KV connector, e.g. "NixlConnector"; "" = none is known
	Engine    string `json:"engine,omitempty"`    // the id of its engine in the connector's messages; "" = not known
	From      string `json:"from,omitempty"`      // where the connector was found: one of the constants below; "" = nowhere
}

// The places where a connector is found.
const (
	FoundInConfiguration = "configuration"
	FoundInMetrics       = "metrics"
	FoundInServerInfo    = "server_info"
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

// maxInfos bounds the requests for /server_info in a replica's life. It exists in vLLM's
// development mode alone, and its first answer takes seconds.
const maxInfos = 2

// learnTransfer finds the replica's KV connector: in the configuration, by its metrics, or
// once it has joined, in its /server_info.
func (w *worker) learnTransfer(ctx context.Context, l *learned, before *learned, scraped bool) {
	l.Transfer = configuredTransfer(w.options)
	if l.Transfer.From != "" {
		return
	}
	if before != nil {
		l.Transfer = before.Transfer // a flag of the process
	}
	if l.Transfer.From != "" {
		return
	}
	if scraped && w.page.connector != "" {
		l.Transfer = Transfer{Connector: w.page.connector, From: FoundInMetrics}
		return
	}
	if before == nil || w.infos == maxInfos {
		return
	}
	w.infos++
	body, err := w.get(ctx, "/server_info?config_format=json")
	if err != nil {
		if !isTransient(err) {
			w.infos = maxInfos
		}
		return
	}
	w.infos = maxInfos
	if t, err := decodeServerInfo(body); err == nil {
		l.Transfer = t
	}
}

// decodeServerInfo reads the KV connector in the answer of /server_info.
func decodeServerInfo(data []byte) (Transfer, error) {
	var v struct {
		Config struct {
			Transfer *struct {
				Connector string `json:"kv_connector"`
				Engine    string `json:"engine_id"`
			} `json:"kv_transfer_config"`
		} `json:"vllm_config"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return Transfer{}, fmt.Errorf("server_info: %w", err)
	}
	t := v.Config.Transfer
	if t == nil || t.Connector == "" {
		return Transfer{From: FoundInServerInfo}, nil
	}
	if !validConnector(t.Connector) || len(t.Engine) > maxNameLength {
		return Transfer{}, fmt.Errorf("server_info: %.150q is not the name of a connector", t.Connector)
	}
	return Transfer{Connector: t.Connector, Engine: t.Engine, From: FoundInServerInfo}, nil
}
