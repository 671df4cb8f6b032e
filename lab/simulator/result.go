package simulator

import (
	"cmp"
	"slices"
)

// Result has the measurements of a run. Times are in seconds. The first requests of the run
// (Config.Warm) only count for balance.
type Result struct {
	Hit           float64   // cached share of the prompt tokens
	Input         float64   // prompt tokens
	Prefill       float64   // engine time of the prefill, of all replicas together
	Mean          float64   // time to first token
	P50, P90, P99 float64   // of the same
	End           float64   // mean time to the last token
	Imbalance     float64   // longest prefill time of a replica, over the mean
	Uneven        float64   // longest time in which a replica computed, prefills and answers, over the mean
	Busy          float64   // share of time replicas computed
	Rate          float64   // requests per second finished between the first and last fifth
	Throughput    float64   // requests per second from the first arrival to the last answer
	TTFT          []float64 // all times to first token, ascending
	Split         int       // requests whose prompt another replica computed
	Preempted     int       // times that a replica took a running request's memory
	Refused       int       // requests that no replica can hold; they are in no other figure
	Served        []Served  // the requests, by arrival
}

// Served is one request's outcome.
type Served struct {
	Input int     // tokens
	TTFT  float64 // s
	TPOT  float64 // s for each token after the first
}

// Goodput returns the share of the requests that had their first token within a second and
// three times their prefill on an idle replica without a cache, and the others within tpot
// seconds each.
func (r *Result) Goodput(hw *Hardware, tpot float64) float64 {
	good := 0
	for i := range r.Served {
		q := &r.Served[i]
		if q.TTFT <= 1+3*hw.Prefill(q.Input, 0) && q.TPOT <= tpot {
			good++
		}
	}
	return float64(good) / float64(max(1, len(r.Served)))
}

func (s *Sim) result() (res Result) {
	warm := int(s.c.Warm * float64(len(s.requests)))
	if s.behind != nil { // the trace is by session; what comes when fewer are open does not count
		slices.SortStableFunc(s.requests, func(a, b *Request) int { return cmp.Compare(a.At, b.At) })
		s.requests = slices.DeleteFunc(s.requests, func(r *Request) bool { return r.At > s.drained })
		warm = int(s.c.Warm * float64(len(s.requests)))
	}
	var cached, input float64
	ends := make([]float64, 0, len(s.requests))
	for i, r := range s.requests {
		if r.refused {
			res.Refused++
			continue
		}
		res.Preempted += r.Preempted
		ends = append(ends, r.Done)
		if i < warm {
			continue
		}
		res.Served = append(res.Served, Served{r.Input, r.First - r.At, (r.Done - r.First) / float64(max(1, r.Output-1))})
		if r.Prefill >= 0 {
			res.Split++
		}
		cached += float64(r.Hit)
		input += float64(r.Input)
		res.Prefill += s.c.Hardware.Prefill(r.Input-r.Hit, r.Hit)
		res.TTFT = append(res.TTFT, r.First-r.At)
		res.Mean += r.First - r.At
		res.End += r.Done - r.At
	}
	n := float64(max(1, len(res.TTFT)))
	res.Hit, res.Input, res.Mean, res.End = cached/max(1, input), input, res.Mean/n, res.End/n
	slices.Sort(res.TTFT)
	res.P50, res.P90, res.P99 = quantile(res.TTFT, .5), quantile(res.TTFT, .9), quantile(res.TTFT, .99)
	slices.Sort(ends)
	from, to := len(ends)/5, len(ends)*4/5
	if to > from && ends[to] > ends[from] {
		res.Rate = float64(to-from) / (ends[to] - ends[from])
	}
	if n := len(ends); n > 0 {
		res.Throughput = float64(n) / max(1e-9, ends[n-1]-s.requests[0].At)
	}
	var most, sum, busiest, busy float64
	for _, e := range s.engines {
		v := float64(e.computed) * e.slow
		most, sum, busiest, busy = max(most, v), sum+v, max(busiest, e.busyTime), busy+e.busyTime
	}
	replicas := float64(len(s.engines))
	res.Imbalance, res.Uneven, res.Busy = most*replicas/max(1, sum), busiest*replicas/max(1e-9, busy), busy/replicas/max(1e-9, quantile(ends, 1))
	return res
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// Saturation returns the rate, in requests per second, that Envoy's P2C balancing can
// sustain on t over the replicas of c. Loads are fractions of it.
func Saturation(t *Trace, c Config) float64 {
	flood := 1e3 * float64(c.Replicas) // more than the replicas can serve
	c.Policy, c.Scrape, c.Seed = Rivals["p2c"], 1, 1
	return New(c, t, flood).Run().Rate
}
