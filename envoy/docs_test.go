package envoy

import (
	"os"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestProtocolDocNamesEverything: every name shared with Envoy is explained.
func TestProtocolDocNamesEverything(t *testing.T) {
	b := must.Get(os.ReadFile("../docs/protocol.md"))(t)
	for _, name := range append(Owned[:], HeaderDestination, HeaderRank, HeaderReason, HeaderServed, HeaderPrefiller, HeaderRetry, MetadataSplit, KeyWait, KeySplitBody, MetadataLB, MetadataServed,
		AttributeUpstream, MetadataSubset, KeySubset, MetadataOwn, KeyReason, KeyWithheld, TagFirstByte, HeaderOptOut, KeyPrompt, KeyPredicted, KeyRank, KeyLoads, "cpu"+KeyMillis, "storage"+KeyMillis, "shared"+KeyMillis, KeySplit, KeyPrefill, KeyPrefillCached, KeyUsage, KeyReported, KeyDecision, MetadataUsage,
		MetadataBody, KeyModel, KeyPriority, HeaderPriority) {
		if !strings.Contains(string(b), "`"+name+"`") {
			t.Errorf("docs/protocol.md does not explain %s", name)
		}
	}
}
