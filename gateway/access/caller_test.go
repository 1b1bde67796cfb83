package access

import "testing"

func TestRolesAreParsedAndPrinted(t *testing.T) {
	for _, text := range []string{"publish", "read", "offline", "admin", "read,admin", "publish,read,offline,admin"} {
		t.Run("valid: "+text, func(t *testing.T) {
			r, err := ParseRoles(text)
			if err != nil || r.String() != text {
				t.Errorf("ParseRoles(%q): got %v and the error %v, want roles with the same text", text, r, err)
			}
		})
	}
	for _, text := range []string{"", "reader", "read,", "read, admin", "READ", "all"} {
		t.Run("invalid: "+text, func(t *testing.T) {
			if r, err := ParseRoles(text); err == nil {
				t.Errorf("ParseRoles(%q): got %v, want an error", text, r)
			}
		})
	}
	t.Run("one role twice", func(t *testing.T) {
		if r, err := ParseRoles("read,read"); err != nil || r != Read {
			t.Errorf("got %v and the error %v, want %v", r, err, Read)
		}
	})
}

func TestAnyFindsRolesInCommon(t *testing.T) {
	if !Read.Any(Read | Admin) {
		t.Errorf("%v.Any(%v): got false, want true", Read, Read|Admin)
	}
	const others = Publish | Offline | Admin
	if Read.Any(others) {
		t.Errorf("%v.Any(%v): got true, want false", Read, others)
	}
	if (Caller{}).Roles.Any(AllRoles) {
		t.Error("the zero caller has a role, want none")
	}
}
