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
	root                        structpb.Struct
	lb, own, body, split, loads section
	texts                       [13]textValue
	numbers                     [13]numberValue
	usedText, usedNums          int
	splice                      splice
	withoutClient               bool // clients get no reason, so the reason for them is left out
}

type (
	// section is a struct as a value of another one.
	section struct {
		of    structpb.Struct
		kind  structpb.Value_StructValue
		value structpb.Value
	}
	textValue struct {
		kind  structpb.Value_StringValue
		value structpb.Value
	}
	numberValue struct {
		kind  structpb.Value_NumberValue
		value structpb.Value
	}
)

// whole returns the section as a value.
func (s *section) whole() *structpb.Value {
	s.kind.StructValue, s.value.Kind = &s.of, &s.kind
	return &s.value
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
	own := fields(&s.own.of, smallMap)
	own[envoy.KeyReason] = s.text(string(d.Reason))
	if !s.withoutClient {
		own["client_reason"] = s.text(d.ForClients())
	}
	if d.Withheld != "" {
		own[envoy.KeyWithheld] = s.text(string(d.Withheld))
	}
	root := fields(&s.root, 3)
	if d.Model != "" {
		fields(&s.body.of, 1)[envoy.KeyModel] = s.text(d.Model)
		root[envoy.MetadataBody] = s.body.whole()
	}
	if d.Model != "" && d.Reason != decision.ReasonNotOurs {
		own["model"] = s.body.of.Fields[envoy.KeyModel]
		own[envoy.KeyPrompt] = s.number(d.Tokens)
		own[envoy.KeyPredicted] = s.number(d.Predicted)
		own[envoy.KeyDecision] = s.number(int(d.Seq))
		if source := d.Match.Source(); source != policy.NoSource {
			own[envoy.KeyMatch] = s.text(source.String())
		}
		if d.Match.Below() > 0 {
			own[envoy.KeyLoads] = s.loaded(&d.Match)
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
		split := fields(&s.split.of, 4)
		split[envoy.KeySplitTo], split[envoy.KeySplitParams] = s.text(s.splice.to), s.text(s.splice.text)
		split[envoy.KeySplitAt], split[envoy.KeySplitSize] = s.number(s.splice.at), s.number(s.splice.size)
		root[envoy.MetadataSplit] = s.split.whole()
	}
	root[envoy.MetadataOwn] = s.own.whole()
	if d.Rank != "" {
		own[envoy.KeyRank] = s.text(d.Rank)
	}
	if d.Order != 0 {
		own[envoy.KeyPriority] = s.text(strconv.FormatInt(d.Order, 10))
	}
	if d.Chosen != "" {
		fields(&s.lb.of, 1)[envoy.HeaderDestination] = s.text(d.Chosen)
		root[envoy.MetadataLB] = s.lb.whole()
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

// loaded returns what the first named replica loads from below its GPU.
func (s *answerMetadata) loaded(m *policy.Match) *structpb.Value {
	loads := fields(&s.loads.of, 6)
	for _, p := range policy.Lower {
		if n := m[p].Found(); n > 0 {
			loads[p.String()], loads[millisKeys[p]] = s.number(n), s.number(int(math.Round(1000*m[p].Seconds())))
		}
	}
	return s.loads.whole()
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
	t := &s.texts[s.usedText]
	s.usedText++
	t.kind.StringValue, t.value.Kind = v, &t.kind
	return &t.value
}

func (s *answerMetadata) number(n int) *structpb.Value {
	v := &s.numbers[s.usedNums]
	s.usedNums++
	v.kind.NumberValue, v.value.Kind = float64(n), &v.kind
	return &v.value
}
