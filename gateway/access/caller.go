package access

import (
	"fmt"
	"strings"
)

// Roles is a set of roles. No role includes another.
type Roles uint8

// The roles.
const (
	// Publish allows a caller to append events.
	Publish Roles = 1 << iota
	// Read allows a caller to read.
	Read
	// Offline allows a caller to read in bulk: scans, exports and the change feed.
	Offline
	// Admin allows a caller to operate the service: to rebuild, repair, copy and erase.
	Admin
)

// AllRoles has all roles. A caller with all roles may do everything.
const AllRoles = Publish | Read | Offline | Admin

// roleNames has the name of each role. The index is the number of the role's bit.
var roleNames = [...]string{"publish", "read", "offline", "admin"}

// Any reports whether the two sets have a role in common.
func (r Roles) Any(other Roles) bool { return r&other != 0 }

// String returns the names of the roles, separated by commas, as [ParseRoles] reads them.
func (r Roles) String() string {
	var names []string
	for i, name := range roleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRoles parses names of roles that are separated by commas, without spaces. There must be at
// least one name.
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

// roleOf returns the role with the given name, or 0 if there is none.
func roleOf(name string) Roles {
	for i, known := range roleNames {
		if known == name {
			return 1 << i
		}
	}
	return 0
}

// Caller is the program or user who makes a call. The zero Caller has no role, so it may do
// nothing.
type Caller struct {
	// Name is the name in the token file, or the subject of the JWT. Logs show it, and limits per
	// caller count by it.
	Name string
	// Roles say what the caller may do.
	Roles Roles
	// User is the only user for whom the caller may act. It is empty for a caller who is not bound
	// to a user.
	User string
}

// Anyone returns the caller of every call where authentication is off. It has all roles.
func Anyone() Caller { return Caller{Name: "anyone", Roles: AllRoles} }
