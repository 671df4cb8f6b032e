package filter

import (
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
)

// answerMetadata is the dynamic metadata of one answer in one piece of memory: the header's
// value again, as envoy.lb (endpoint-picker protocol 004 requires both, and equal), and the
// values that access logs may print.
type answerMetadata struct {
	root, lb, own      structpb.Struct
	inLB, inOwn        structpb.Value
	lbKind, ownKind    structpb.Value_StructValue
	texts              [4]structpb.Value
	textKinds          [4]structpb.Value_StringValue
	numbers            [2]structpb.Value
	numberKinds        [2]structpb.Value_NumberValue
	usedText, usedNums int
	withoutClient      bool // clients get no reason, so the reason for them is left out
}

// of fills in and returns the metadata of d. It replaces the previous values.
func (s *answerMetadata) of(d *decision.Decision) *structpb.Struct {
	s.usedText, s.usedNums = 0, 0
	own := fields(&s.own, 5)
	own["reason"] = s.text(string(d.Reason))
	if !s.withoutClient {
		own["client_reason"] = s.text(d.Reason.ForClients())
	}
	if d.Model != "" {
		own["model"] = s.text(d.Model)
		own["prompt_tokens"] = s.number(d.Tokens)
		own["predicted_tokens"] = s.number(d.Predicted)
	}
	s.ownKind.StructValue, s.inOwn.Kind = &s.own, &s.ownKind
	root := fields(&s.root, 2)
	root[envoy.MetadataOwn] = &s.inOwn
	if d.Destination != "" {
		fields(&s.lb, 1)[envoy.HeaderDestination] = s.text(d.Destination)
		s.lbKind.StructValue, s.inLB.Kind = &s.lb, &s.lbKind
		root[envoy.MetadataLB] = &s.inLB
	}
	return &s.root
}

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
