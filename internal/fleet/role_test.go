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
	r := &Replica{Addr: addr, Reported: Reported{Version: "0.32.0", BlockSize: 16, Models: []Model{{ID: "alias", Base: "m"}, {ID: "l", Base: "m"}}, Transfer: Transfer{Connector: "NixlConnector", From: FoundInMetrics}}}
	change(r)
	return r
}

// A pair needs the same model, version, connector and block size, all of them known.
func TestAlike(t *testing.T) {
	none := func(*Replica) {}
	for name, c := range map[string]struct {
		p, d  func(*Replica)
		alike bool
	}{
		"equal":                     {none, none, true},
		"one model in common":       {func(r *Replica) { r.Models = []Model{{ID: "other", Base: "n"}, {ID: "m", Base: "m"}} }, none, true},
		"the first's connector":     {func(r *Replica) { r.Transfer = Transfer{} }, none, false},
		"the second's connector":    {none, func(r *Replica) { r.Transfer = Transfer{From: FoundInConfiguration} }, false},
		"no connectors":             {func(r *Replica) { r.Transfer = Transfer{} }, func(r *Replica) { r.Transfer = Transfer{} }, false},
		"connectors differ":         {none, func(r *Replica) { r.Transfer.Connector = "LMCacheConnectorV1" }, false},
		"a version is not known":    {none, func(r *Replica) { r.Version = "" }, false},
		"no version is known":       {func(r *Replica) { r.Version = "" }, func(r *Replica) { r.Version = "" }, false},
		"versions differ":           {none, func(r *Replica) { r.Version = "0.33.0" }, false},
		"a block size is not known": {func(r *Replica) { r.BlockSize = 0 }, none, false},
		"no block size is known":    {func(r *Replica) { r.BlockSize = 0 }, func(r *Replica) { r.BlockSize = 0 }, false},
		"block sizes differ":        {none, func(r *Replica) { r.BlockSize = 32 }, false},
		"no model in common":        {none, func(r *Replica) { r.Models = []Model{{ID: "m", Base: "n"}} }, false},
	} {
		if p, d := pairable("10.0.0.1:8000", c.p), pairable("10.0.0.2:8000", c.d); Alike(p, d) != c.alike {
			t.Errorf("%s: alike %v", name, !c.alike)
		}
	}
}
