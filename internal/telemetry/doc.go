// Package telemetry sets up the log and the metrics registry, the same way in
// every binary.
//
// Invariant: logging never delays or fails the code that logs. A log
// line is queued without waiting and without an error; when the queue is full or
// the line cannot be written (a full disk, a closed pipe, a terminal that is
// stopped), it is lost and counted. A LogLimiter bounds the lines of each kind and
// subject, so that nothing outside fills a disk.
//
// All metrics are named warmroute_…, except those of the Go runtime and of the process,
// which have their usual names (go_…, process_…). Subpackage metricstest checks
// that and the naming rules of Prometheus in each package's tests.
//
// The package defines no metric of the product and opens no port.
package telemetry
