package operator

import (
	"slices"
	"strings"

	"sluice/pipeline"
)

// Role is what a token may do. Each role may do what those before it may.
type Role string

// The roles.
const (
	Read    Role = "read"    // look at everything
	Operate Role = "operate" // change sales, orders and money
	Admin   Role = "admin"   // change where events go, rebuild what Redis has, erase buyers
)

// Roles are all of them, the least first.
var Roles = []Role{Read, Operate, Admin}

// Allows reports whether a role may do what needs another one. A role that does not exist allows nothing.
func (r Role) Allows(needed Role) bool {
	has := slices.Index(Roles, r)
	return has >= 0 && slices.Contains(Roles[:has+1], needed)
}

// ParseRole returns the role of this name, or a KindInvalid error that names all.
func ParseRole(name string) (Role, error) {
	if !slices.Contains(Roles, Role(name)) {
		names := make([]string, len(Roles))
		for i, r := range Roles {
			names[i] = string(r)
		}
		return "", pipeline.Errorf(pipeline.KindInvalid, "role %q: use %s", name, strings.Join(names, ", "))
	}
	return Role(name), nil
}
