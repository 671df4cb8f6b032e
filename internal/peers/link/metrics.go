package link

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	descConnected = prometheus.NewDesc("warmroute_peers_connected", "1 while NATS is reachable.", nil, nil)
	descMessages  = prometheus.NewDesc("warmroute_peers_messages_total",
		"Messages between routers: sent, read, garbage, refused (another version, or a name used twice), unsent, dropped (not read in time).", []string{"what"}, nil)
	descBytes  = prometheus.NewDesc("warmroute_peers_bytes_total", "Bytes of messages between routers: sent, read.", []string{"what"}, nil)
	descSilent = prometheus.NewDesc("warmroute_peer_silent_seconds", "Time since the last message of a router.", []string{"peer"}, nil)
	descRTT    = prometheus.NewDesc("warmroute_peer_round_trip_seconds", "Last measured round trip to a router.", []string{"peer"}, nil)
	descShare  = prometheus.NewDesc("warmroute_peer_in_flight_requests", "Requests that a router has in flight.", []string{"peer"}, nil)
)

// Collector gives the metrics of a Link that is opened later, if at all.
type Collector struct{ link atomic.Pointer[Link] }

// Of sets the link.
func (c *Collector) Of(l *Link) { c.link.Store(l) }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descConnected, descMessages, descBytes, descSilent, descRTT, descShare} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	l := c.link.Load()
	if l == nil {
		return
	}
	give := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	s := l.State()
	connected := 0.0
	if s.Connected {
		connected = 1
	}
	give(gauge, descConnected, connected)
	for what, n := range map[string]uint64{
		"sent": s.Stats.Sent, "read": s.Stats.Read, "garbage": s.Stats.Garbage, "refused": s.Stats.Refused, "unsent": s.Unsent, "dropped": s.Dropped,
	} {
		give(counter, descMessages, float64(n), what)
	}
	give(counter, descBytes, float64(s.Stats.SentBytes), "sent")
	give(counter, descBytes, float64(s.Stats.ReadBytes), "read")
	for _, p := range s.Peers {
		give(gauge, descSilent, p.Silent.Seconds(), p.ID)
		if p.RTT > 0 {
			give(gauge, descRTT, p.RTT.Seconds(), p.ID)
		}
		give(gauge, descShare, float64(p.InFlight.Requests), p.ID)
	}
}
