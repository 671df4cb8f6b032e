package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// Role is the part that a replica takes in requests whose prompt one replica computes
// and another one answers.
type Role uint8

const (
	RoleBoth    Role = iota // it answers requests, and computes prompts for others
	RolePrefill             // it computes prompts for others, and answers no request itself
	RoleDecode              // it answers requests, and computes no prompt for another
)

var roleNames = [...]string{RoleBoth: "both", RolePrefill: "prefill", RoleDecode: "decode"}

func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("Role(%d)", uint8(r))
}

// ParseRole reads a role's name; "" is both.
func ParseRole(name string) (Role, error) {
	if name == "" {
		return RoleBoth, nil
	}
	if i := slices.Index(roleNames[:], name); i >= 0 {
		return Role(i), nil
	}
	return RoleBoth, fmt.Errorf("%q is none of %s", name, strings.Join(roleNames[:], ", "))
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads a role's name.
func (r *Role) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRole(string(text))
	return err
}

// Pairs reports whether d can answer a request whose prompt p has computed.
func Pairs(p, d *Replica) bool { return WhyNotPaired(p, d) == "" }

// WhyNotPaired returns the reason why d cannot answer a request whose prompt p has
// computed, "" if it can.
func WhyNotPaired(p, d *Replica) string {
	switch {
	case p == d || p.Addr == d.Addr:
		return "they are one replica"
	case p.Role == RoleDecode:
		return "the first has the role decode"
	case d.Role == RolePrefill:
		return "the second has the role prefill"
	}
	return whyNotAlike(p, d)
}

// Alike reports whether two replicas can hand KV caches to each other, whatever their roles
// are.
func Alike(p, d *Replica) bool { return whyNotAlike(p, d) == "" }

// whyNotAlike returns the reason why not. A connector's handshake needs equal versions, and
// blocks are copied by their positions: they must have equal sizes.
func whyNotAlike(p, d *Replica) string {
	switch {
	case p.Transfer.Connector == "":
		return "the first has no known KV connector"
	case d.Transfer.Connector == "":
		return "the second has no known KV connector"
	case p.Transfer.Connector != d.Transfer.Connector:
		return "their KV connectors differ"
	case p.Version == "" || d.Version == "":
		return "a version is not known"
	case p.Version != d.Version:
		return "their versions differ"
	case p.BlockSize == 0 || d.BlockSize == 0:
		return "a block size is not known"
	case p.BlockSize != d.BlockSize:
		return "their block sizes differ"
	case !slices.ContainsFunc(p.Models, func(m Model) bool { return d.servesBase(m.Base) }):
		return "they serve no model in common"
	}
	return ""
}

func (r *Replica) servesBase(base string) bool {
	return slices.ContainsFunc(r.Models, func(m Model) bool { return m.Base == base })
}
