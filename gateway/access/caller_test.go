package access

import "testing"

func TestRolesAreParsedAndPrinted(t *testing.T) {
	for _, text := range []string{"publish", "read", "offline", "admin", "read,admin", "publish,read,offline,admin"} {
		t.Run(text, func(t *testing.T) {
			r, err := ParseRoles(text)
			if err != nil || r.String() != text {
				t.Errorf("got %v, %v; expected roles with the same text", r, err)
			}
		})
	}
	for _, text := range []string{"", "reader", "read,", "read, admin", "READ", "all"} {
		t.Run("invalid: "+text, func(t *testing.T) {
			if r, err := ParseRoles(text); err == nil {
				t.Errorf("got %v, expected an error", r)
			}
		})
	}

	if r, _ := ParseRoles("read,read"); r != Read || !r.Any(Read|Admin) || r.Any(Publish|Offline|Admin) {
		t.Errorf("ParseRoles of a role that is there twice: got %v, expected %v", r, Read)
	}
	if (Caller{}).Roles.Any(AllRoles) {
		t.Error("the zero caller has a role")
	}
}
