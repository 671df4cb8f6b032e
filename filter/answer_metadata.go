package filter

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
)

// answerMetadata is the dynamic metadata of one answer in one piece of memory: the header's
// value again, as envoy.lb (endpoint-picker protocol 004 requires both, and equal), the model
// for Envoy's routes, and the values that access logs may print.
type answerMetadata struct {
	root, lb, own, body, split, loads               structpb.Struct
	inLB, inOwn, inBody, inSplit, inLoads           structpb.Value
	lbKind, ownKind, bodyKind, splitKind, loadsKind structpb.Value_StructValue
	texts                                           [13]structpb.Value
	textKinds                                       [13]structpb.Value_StringValue
	numbers                                         [13]structpb.Value
	numberKinds                                     [13]structpb.Value_NumberValue
	splice                                          splice
	usedText, usedNums                              int
	withoutClient                                   bool // clients get no reason, so the reason for them is left out
}

// splice is what Envoy puts into the body of a request, on its way to one replica.
type splice struct {
	to       string // "ip:port" of the replica, "" = there is no splice
	at, size int    // position, and bytes of the body without it
	text     string
}

// of fills in and returns the metadata of d. It replaces the previous values.
func (s *answerMetadata) of(d *decision.Decision) *structpb.Struct {
	s.usedText, s.usedNums = 0, 0
	own := fields(&s.own, smallMap)
	own[envoy.KeyReason] = s.text(string(d.Reason))
	if !s.withoutClient {
		own["client_reason"] = s.text(d.ForClients())
	}
	if d.Withheld != "" {
		own[envoy.KeyWithheld] = s.text(string(d.Withheld))
	}
	root := fields(&s.root, 3)
	if d.Model != "" {
		fields(&s.body, 1)[envoy.KeyModel] = s.text(d.Model)
		s.bodyKind.StructValue, s.inBody.Kind = &s.body, &s.bodyKind
		root[envoy.MetadataBody] = &s.inBody
	}
	if d.Model != "" && d.Reason != decision.ReasonNotOurs {
		own["model"] = s.body.Fields[envoy.KeyModel]
		own[envoy.KeyPrompt] = s.number(d.Tokens)
		own[envoy.KeyPredicted] = s.number(d.Predicted)
		own[envoy.KeyDecision] = s.number(int(d.Seq))
		if source := d.Match.Source(); source != policy.NoSource {
			own[envoy.KeyMatch] = s.text(source.String())
		}
		if d.Match.Below() > 0 {
			s.loaded(&d.Match)
			own[envoy.KeyLoads] = &s.inLoads
		}
	}
	if d.Usage != "" {
		own[envoy.KeyUsage] = s.text(d.Usage)
		own[envoy.KeyReported] = s.number(d.Reported)
	}
	if d.SplitReason != "" {
		own[envoy.KeySplit] = s.text(string(d.SplitReason))
	}
	if d.Split != nil {
		own[envoy.KeySplit], own[envoy.KeyPrefill] = s.text(string(d.Split.Reason())), s.text(d.Split.Prefill)
		if hit, ok := d.Split.Hit(); ok {
			own[envoy.KeyPrefillCached] = s.number(hit)
		}
	}
	if s.splice.to != "" {
		split := fields(&s.split, 4)
		split[envoy.KeySplitTo], split[envoy.KeySplitParams] = s.text(s.splice.to), s.text(s.splice.text)
		split[envoy.KeySplitAt], split[envoy.KeySplitSize] = s.number(s.splice.at), s.number(s.splice.size)
		s.splitKind.StructValue, s.inSplit.Kind = &s.split, &s.splitKind
		root[envoy.MetadataSplit] = &s.inSplit
	}
	s.ownKind.StructValue, s.inOwn.Kind = &s.own, &s.ownKind
	root[envoy.MetadataOwn] = &s.inOwn
	if d.Rank != "" {
		own[envoy.KeyRank] = s.text(d.Rank)
	}
	if d.Order != 0 {
		own[envoy.KeyPriority] = s.text(strconv.FormatInt(d.Order, 10))
	}
	if d.Chosen != "" {
		fields(&s.lb, 1)[envoy.HeaderDestination] = s.text(d.Chosen)
		s.lbKind.StructValue, s.inLB.Kind = &s.lb, &s.lbKind
		root[envoy.MetadataLB] = &s.inLB
	}
	return &s.root
}

// millisKeys are the keys of the milliseconds that places are loaded in.
var millisKeys = func() (keys [policy.Cut]string) {
	for _, p := range policy.Lower {
		keys[p] = p.String() + envoy.KeyMillis
	}
	return keys
}()

// loaded fills in what the first named replica loads from below its GPU.
func (s *answerMetadata) loaded(m *policy.Match) {
	loads := fields(&s.loads, 6)
	for _, p := range policy.Lower {
		if n := m[p].Found(); n > 0 {
			loads[p.String()], loads[millisKeys[p]] = s.number(n), s.number(int(math.Round(1000*m[p].Seconds())))
		}
	}
	s.loadsKind.StructValue, s.inLoads.Kind = &s.loads, &s.loadsKind
}

// smallMap is the number of entries up to which Go keeps a map in one group, which is faster
// to fill and to read: most answers have fewer, the others make it grow.
const smallMap = 8

// fields returns the map of a struct, without fields.
func fields(of *structpb.Struct, room int) map[string]*structpb.Value {
	if of.Fields == nil {
		of.Fields = make(map[string]*structpb.Value, room)
	}
	clear(of.Fields)
	return of.Fields
}

func (s *answerMetadata) text(v string) *structpb.Value {
	kind, value := &s.textKinds[s.usedText], &s.texts[s.usedText]
	s.usedText++
	kind.StringValue, value.Kind = v, kind
	return value
}

func (s *answerMetadata) number(n int) *structpb.Value {
	kind, value := &s.numberKinds[s.usedNums], &s.numbers[s.usedNums]
	s.usedNums++
	kind.NumberValue, value.Kind = float64(n), kind
	return value
}
