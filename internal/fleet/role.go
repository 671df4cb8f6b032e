package fleet

import (
	"cmp"
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
	if i := slices.Index(roleNames[:], cmp.Or(name, RoleBoth.String())); i >= 0 {
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

// Alike reports whether two replicas can hand KV caches to each other, whatever their roles
// are. A connector's handshake needs equal versions, and blocks are copied by their positions:
// they must have equal sizes.
func Alike(p, d *Replica) bool {
	return p.Transfer.Connector != "" && p.Transfer.Connector == d.Transfer.Connector && p.Version != "" && p.Version == d.Version &&
		p.BlockSize != 0 && p.BlockSize == d.BlockSize && slices.ContainsFunc(p.Models, func(m Model) bool { return d.servesBase(m.Base) })
}

func (r *Replica) servesBase(base string) bool {
	return slices.ContainsFunc(r.Models, func(m Model) bool { return m.Base == base })
}
