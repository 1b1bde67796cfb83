package access

import "testing"

func TestRolesAreParsedAndPrinted(t *testing.T) {
	for _, text := range []string{"publish", "read", "offline", "admin", "read,admin", "publish,read,offline,admin"} {
		r, err := ParseRoles(text)
		if err != nil || r.String() != text {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	for _, text := range []string{"", "reader", "read,", "read, admin", "READ", "all"} {
		if r, err := ParseRoles(text); err == nil {
			t.Errorf("%q is taken for %v", text, r)
		}
	}
	if r, _ := ParseRoles("read,read"); r != Read || !r.Any(Read|Admin) || r.Any(Publish|Offline|Admin) {
		t.Error(r)
	}
	if (Caller{}).Roles.Any(AllRoles) {
		t.Error("nobody has a role")
	}
}
