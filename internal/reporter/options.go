package reporter

import (
	"io"
	"log/slog"
	"time"

	"warmroute/index"
)

// Options configure a Reporter.
type Options struct {
	Tenant  string        // the replica's, for messages without blocks
	Model   string        // its base model, for messages without blocks
	Window  time.Duration // how long added blocks are collected; default 100 ms
	Timeout time.Duration // of one call, and of the final flush; default 5 s
	Backoff time.Duration // after a failed call; default 1 s
	Ping    time.Duration // how often an idle reporter checks whether the index still has its report; default 1 s
	Up      func() bool   // reports whether the publisher is connected; nil: it is
	Log     *slog.Logger
	Now     func() time.Time // default index.Now
}

// complete sets the defaults.
func (o *Options) complete() {
	positive := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	positive(&o.Window, 100*time.Millisecond)
	positive(&o.Timeout, 5*time.Second)
	positive(&o.Backoff, time.Second)
	positive(&o.Ping, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if o.Now == nil {
		o.Now = index.Now
	}
}
