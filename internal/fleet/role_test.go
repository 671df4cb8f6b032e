package fleet

import (
	"encoding/json"
	"testing"
)

func TestRolesHaveNames(t *testing.T) {
	for role, name := range map[Role]string{RoleBoth: "both", RolePrefill: "prefill", RoleDecode: "decode"} {
		back, err := ParseRole(name)
		if role.String() != name || back != role || err != nil {
			t.Errorf("%d is written %q, and read as %v: %v", role, role, back, err)
		}
		var r Role
		if text, err := json.Marshal(role); err != nil || json.Unmarshal(text, &r) != nil || r != role {
			t.Errorf("%v as JSON: %s, read as %v", role, text, r)
		}
	}
	if r, err := ParseRole(""); r != RoleBoth || err != nil {
		t.Errorf("no name is %v: %v", r, err)
	}
	if err := json.Unmarshal([]byte(`"encode"`), new(Role)); err == nil {
		t.Error("a role that does not exist was read")
	}
}

func pairable(addr string, change func(*Replica)) *Replica {
	r := &Replica{Addr: addr, Version: "0.32.0", BlockSize: 16, Models: []Model{{ID: "alias", Base: "m"}, {ID: "l", Base: "m"}},
		Transfer: Transfer{Connector: "NixlConnector", From: FoundInMetrics}}
	change(r)
	return r
}

// A pair needs the same model, version, connector and block size, and roles that allow it.
func TestPairs(t *testing.T) {
	none := func(*Replica) {}
	for _, c := range []struct {
		p, d func(*Replica)
		why  string
	}{
		{none, none, ""},
		{func(r *Replica) { r.Role = RolePrefill }, func(r *Replica) { r.Role = RoleDecode }, ""},
		{func(r *Replica) { r.Models = []Model{{ID: "other", Base: "n"}, {ID: "m", Base: "m"}} }, none, ""},
		{func(r *Replica) { r.Role = RoleDecode }, none, "the first has the role decode"},
		{none, func(r *Replica) { r.Role = RolePrefill }, "the second has the role prefill"},
		{func(r *Replica) { r.Transfer = Transfer{} }, none, "the first has no known KV connector"},
		{none, func(r *Replica) { r.Transfer = Transfer{From: FoundInConfiguration} }, "the second has no known KV connector"},
		{none, func(r *Replica) { r.Transfer.Connector = "LMCacheConnectorV1" }, "their KV connectors differ"},
		{none, func(r *Replica) { r.Version = "" }, "a version is not known"},
		{none, func(r *Replica) { r.Version = "0.33.0" }, "their versions differ"},
		{func(r *Replica) { r.BlockSize = 0 }, none, "a block size is not known"},
		{none, func(r *Replica) { r.BlockSize = 32 }, "their block sizes differ"},
		{none, func(r *Replica) { r.Models = []Model{{ID: "m", Base: "n"}} }, "they serve no model in common"},
		{none, func(r *Replica) { r.Addr = "10.0.0.1:8000" }, "they are one replica"},
	} {
		p, d := pairable("10.0.0.1:8000", c.p), pairable("10.0.0.2:8000", c.d)
		if why := WhyNotPaired(p, d); why != c.why || Pairs(p, d) != (why == "") {
			t.Errorf("got %q, want %q", why, c.why)
		}
	}
}
