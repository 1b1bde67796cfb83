package access

import (
	"fmt"
	"strings"
)

// Roles is a set of what callers may do. No role contains another.
type Roles uint8

// The roles.
const (
	// Publish is to append events.
	Publish Roles = 1 << iota
	// Read is to ask.
	Read
	// Offline is to read in bulk: scans, exports, the change feed.
	Offline
	// Admin is to rebuild, repair, copy and erase.
	Admin
)

// AllRoles are all roles: a caller who has them may do everything.
const AllRoles = Publish | Read | Offline | Admin

// roleNames are in the order of their bits.
var roleNames = [...]string{"publish", "read", "offline", "admin"}

// Any reports whether one of some roles is in the set.
func (r Roles) Any(of Roles) bool { return r&of != 0 }

// String returns the names, with a comma between them, as [ParseRoles] reads them.
func (r Roles) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRoles reads names of roles with commas between them, at least one.
func ParseRoles(text string) (Roles, error) {
	var all Roles
	for name := range strings.SplitSeq(text, ",") {
		role := roleOf(name)
		if role == 0 {
			return 0, fmt.Errorf("%q is no role: want some of %s, with commas between them", name, AllRoles)
		}
		all |= role
	}
	return all, nil
}

// roleOf returns the role with a name; 0 means there is none.
func roleOf(name string) Roles {
	for i, known := range roleNames {
		if known == name {
			return 1 << i
		}
	}
	return 0
}

// Caller makes a call. The zero Caller has no role, so it may do nothing.
type Caller struct {
	// Name is for people: that of the token file, or the subject of a JWT.
	Name string
	// Roles are what the caller may do.
	Roles Roles
	// User is the one user that the caller acts for; empty means it is bound to none.
	User string
}

// Anyone returns the caller of every call where authentication is off. It has all roles.
func Anyone() Caller { return Caller{Name: "anyone", Roles: AllRoles} }
