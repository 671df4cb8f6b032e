package outcome

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/load"
)

// Answer is a request's end, as Envoy reports it. The names and the prediction are
// those that the request carried, so they need no record of its decision.
type Answer struct {
	RequestID string
	Decision  uint64            // the number of the decision's record; 0 = no record is kept
	Model     string            // "" = none
	Withheld  decision.Withheld // why there is no hint although the decision named a replica
	Hint      string            // the named replicas, best first, "" = none
	Rank      string            // the value of the request's rank header, "" = it had none
	Replica   string            // that served: an answer came from it, whatever its status; "" = none did
	Prefill   string            // the other replica that computed the prompt, "" = none did
	Told      bool              // the router knows the replica from the response's headers already
	Status    int               // of the response, 0 = none
	GaveUp    time.Duration     // so long after its request the client left without an answer; 0 = it did not

	Failure
	Prediction
	Times
	Usage Usage
}

// Times are from the request's first byte to the first of the answer's body, and to the last. Where
// Envoy does not report the body's, FirstByte is the headers', which vLLM sends at once for a stream.
type Times struct{ FirstByte, Duration time.Duration }

// Failure is what went wrong before an answer, or in it.
type Failure struct {
	Failed     string // the replica that Envoy tried last and that failed: it answered 5xx, was not reached, or broke the connection; "" = none
	PassedOver bool   // the replica that the hint names first failed before another one served, by all that is known
	Retried    bool   // Envoy tried another replica before, which failed by all that is known
}

// Prediction is what the router expected of the first named replica.
type Prediction struct {
	Prompt    int // tokens of the prompt, as the router counted
	Predicted int // of these, tokens that were predicted to be cached there
	Reported  int // of these, tokens that its events reported as cached; 0 unless usage was asked for
}

// First returns the replica that the hint names first.
func (a *Answer) First() string {
	first, _, _ := strings.Cut(a.Hint, ",")
	return first
}

// Followed reports whether the replica that the hint names first has served.
func (a *Answer) Followed() bool { return a.Replica != "" && a.Replica == a.First() }

// answerOf reads an entry.
func answerOf(e *logv3.HTTPAccessLogEntry) Answer {
	common := e.GetCommonProperties()
	all := common.GetMetadata().GetFilterMetadata()
	lb, own := all[envoy.MetadataLB].GetFields(), all[envoy.MetadataOwn].GetFields()
	a := Answer{
		RequestID: decision.RequestID(e.GetRequest().GetRequestId()), Decision: uint64(whole(own[envoy.KeyDecision], mostDecisions)),
		Model:    own["model"].GetStringValue(),
		Withheld: withheld(own[envoy.KeyWithheld].GetStringValue()),
		Hint:     lb[envoy.HeaderDestination].GetStringValue(),
		Rank:     own[envoy.KeyRank].GetStringValue(),
		Told:     lb[envoy.MetadataServed].GetStringValue() != "", Status: int(e.GetResponse().GetResponseCode().GetValue()),
		Prediction: Prediction{Prompt: count(own[envoy.KeyPrompt]), Predicted: count(own[envoy.KeyPredicted]), Reported: count(own[envoy.KeyReported])},
		Times:      Times{FirstByte: span(common.GetTimeToFirstUpstreamRxByte()), Duration: span(common.GetTimeToLastDownstreamTxByte())},
	}
	a.judge(common)
	if a.Hint == "" { // a gateway that does not take the metadata logs the header
		a.Hint = e.GetRequest().GetRequestHeaders()[envoy.HeaderDestination]
	}
	if us, err := strconv.ParseInt(common.GetCustomTags()[envoy.TagFirstByte], 10, 64); err == nil && us >= 0 && us <= mostMicroseconds {
		a.FirstByte = time.Duration(us) * time.Microsecond
	}
	asked := own[envoy.KeyUsage].GetStringValue() != ""
	a.Usage = usageOf(common.GetMetadata().GetTypedFilterMetadata()[envoy.MetadataUsage], asked && a.Status == http.StatusOK)
	a.split(own)
	return a
}

// judge tells who served and who failed. Envoy's upstream is the replica that it tried last, and
// some statuses are Envoy's own: an answer has come where its first byte has.
func (a *Answer) judge(c *logv3.AccessLogCommon) {
	tried, f := address(c.GetUpstreamRemoteAddress()), c.GetResponseFlags()
	if c.GetTimeToFirstUpstreamRxByte() != nil {
		a.Replica = tried
	}
	broken := f.GetUpstreamConnectionFailure() || f.GetUpstreamConnectionTermination() || f.GetUpstreamRemoteReset() || f.GetUpstreamProtocolError()
	if broken || a.Replica != "" && load.Failure(a.Status) {
		a.Failed = tried
	}
	if left := f.GetDownstreamConnectionTermination() || f.GetDownstreamRemoteReset(); left && a.Status == 0 && a.Replica == "" {
		a.GaveUp = max(1, span(c.GetDuration())-span(c.GetTimeToLastRxByte()))
	}
	tries := span(c.GetTimeToFirstUpstreamTxByte()) - span(c.GetTimeToLastRxByte()) // before the last one
	_, generated := c.GetCustomTags()[envoy.TagFirstByte]                           // where one try has no timeout
	a.Retried = c.GetUpstreamRequestAttemptCount() > 1 && (generated || tries <= load.RetriedWithin)
}

// split reads which other replica computed the prompt. The cached tokens of such an answer are
// those of neither replica alone: that one's own count takes their place.
func (a *Answer) split(own map[string]*structpb.Value) {
	if decision.SplitReason(own[envoy.KeySplit].GetStringValue()) != decision.SplitDone {
		return
	}
	a.Prefill = own[envoy.KeyPrefill].GetStringValue()
	if a.Usage.State != UsageComplete {
		return
	}
	counted, told := own[envoy.KeyPrefillCached]
	if a.Usage.Cached = min(count(counted), a.Usage.Prompt); !told {
		a.Usage.State = UsagePartial
	}
}

// withheld returns one of the closed set.
func withheld(text string) decision.Withheld {
	if w := decision.Withheld(text); slices.Contains(decision.AllWithheld(), w) {
		return w
	}
	return decision.WithheldNot
}

// mostMicroseconds is a year.
const mostMicroseconds = 365 * 24 * 3600 * 1e6

// mostTokens is above every context, mostDecisions above every decision's number; both are exact
// in a float64.
const mostTokens, mostDecisions = 1 << 24, 1 << 53

// count returns a number of tokens of metadata, 0 for another value.
func count(v *structpb.Value) int { return whole(v, mostTokens) }

// whole returns a whole number of metadata up to most, 0 for another value.
func whole(v *structpb.Value, most float64) int {
	if n := v.GetNumberValue(); n > 0 && n <= most {
		return int(n)
	}
	return 0
}

// span returns a time that has passed, 0 if it is not known.
func span(d *durationpb.Duration) time.Duration { return max(0, d.AsDuration()) }

func address(a *corev3.Address) string {
	s := a.GetSocketAddress()
	if s == nil {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
}
