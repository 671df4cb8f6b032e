package tracefile_test

import (
	"io"

	"warmroute/internal/tracefile"
	"warmroute/internal/tracefile/tracereader"
)

func init() {
	tracefile.Read = func(files ...io.Reader) (out tracefile.Trace, err error) {
		r := tracereader.Reader{
			Request: func(q *tracereader.Request) error {
				out.Requests = append(out.Requests, tracefile.Request(*q))
				return nil
			},
			Ended:   func(_ int, e *tracefile.Ended) error { out.Ends = append(out.Ends, *e); return nil },
			Counted: func(_ int, c *tracefile.Counted) error { out.Counts = append(out.Counts, *c); return nil },
			Fleet:   func(f []tracefile.Replica) error { out.Fleets = append(out.Fleets, f); return nil },
			Prefill: func(p *tracefile.Prefilled) error { out.Prefills = append(out.Prefills, *p); return nil },
		}
		for _, f := range files {
			if err := r.Read(f); err != nil {
				return out, err
			}
		}
		return out, nil
	}
}
