package access

import "testing"

func TestRolesAreParsedAndPrinted(t *testing.T) {
	for _, text := range []string{"publish", "read", "offline", "admin", "read,admin", "publish,read,offline,admin"} {
		r, err := ParseRoles(text)
		if err != nil || r.String() != text {
			t.Errorf("ParseRoles(%q): got %v, %v; expected roles with the same text", text, r, err)
		}
	}
	for _, text := range []string{"", "reader", "read,", "read, admin", "READ", "all"} {
		if r, err := ParseRoles(text); err == nil {
			t.Errorf("ParseRoles(%q): got %v, expected an error", text, r)
		}
	}
	if r, _ := ParseRoles("read,read"); r != Read || !r.Any(Read|Admin) || r.Any(Publish|Offline|Admin) {
		t.Errorf("ParseRoles of a role that is there twice: got %v, expected %v", r, Read)
	}
	if (Caller{}).Roles.Any(AllRoles) {
		t.Error("the zero caller has a role")
	}
}
