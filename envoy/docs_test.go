package envoy

import (
	"os"
	"strings"
	"testing"
)

// TestProtocolDocNamesEverything: every name shared with Envoy is explained.
func TestProtocolDocNamesEverything(t *testing.T) {
	b, err := os.ReadFile("../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Owned[:], HeaderDestination, HeaderRank, HeaderReason, HeaderServed, HeaderPrefiller, HeaderRetry, MetadataSplit, KeyWait, KeySplitBody, MetadataLB, MetadataServed,
		AttributeUpstream, MetadataSubset, KeySubset, MetadataOwn, KeyReason, KeyWithheld, TagFirstByte, HeaderOptOut, KeyPrompt, KeyPredicted, KeyRank, KeyLoads, "cpu"+KeyMillis, "storage"+KeyMillis, "shared"+KeyMillis, KeySplit, KeyPrefill, KeyPrefillCached, KeyUsage, KeyReported, KeyDecision, MetadataUsage,
		MetadataBody, KeyModel, KeyPriority, HeaderPriority) {
		if !strings.Contains(string(b), "`"+name+"`") {
			t.Errorf("docs/protocol.md does not explain %s", name)
		}
	}
}
