package events

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// kindFields are the members of the oneof, by number.
func kindFields() map[Kind]protoreflect.FieldDescriptor {
	fields := map[Kind]protoreflect.FieldDescriptor{}
	members := kindOneof().Fields()
	for i := range members.Len() {
		f := members.Get(i)
		fields[Kind(f.Number())] = f
	}
	return fields
}

// The numbers and names of kinds are those of the message.
func TestKindsMatchMessage(t *testing.T) {
	fields := kindFields()
	for k, f := range fields {
		if got, ok := ParseKind(string(f.Name())); !ok || got != k || !k.Valid() || k.String() != string(f.Name()) {
			t.Errorf("field %d %s is kind %v", f.Number(), f.Name(), got)
		}
	}
	if n := len(AllKinds.Slice()); n != len(fields) {
		t.Errorf("%d kinds, the message has %d", n, len(fields))
	}
	for _, k := range []Kind{0, firstKind - 1, noKind, lastKind + 1, 63, 64, 255} {
		if k.Valid() || k.Backfillable() || AllKinds.Has(k) || k.String() == "" {
			t.Errorf("kind %d counts as known", k)
		}
	}
	for _, name := range []string{"user_befriended", ""} {
		if k, ok := ParseKind(name); ok {
			t.Errorf("ParseKind of %q: %v", name, k)
		}
	}
}

// History can be brought for these kinds, and no others.
func TestBackfillableKinds(t *testing.T) {
	want := strings.Fields(`user_followed user_unfollowed board_followed board_unfollowed board_created
		pin_created user_blocked user_muted liked played served repins_hidden`)
	var got []string
	for _, k := range AllKinds.Slice() {
		if k.Backfillable() {
			got = append(got, k.String())
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("backfillable: %v, want %v", got, want)
	}
}

func TestKindSet(t *testing.T) {
	s := Kinds(Played, UserFollowed)
	if !s.Has(Played) || !s.Has(UserFollowed) || s.Has(Served) || s.Has(0) {
		t.Errorf("%b has the wrong kinds", s)
	}
	if got := s.Slice(); !slices.Equal(got, []Kind{UserFollowed, Played}) {
		t.Errorf("Slice() = %v", got)
	}
	if got := Kinds(); got != 0 || len(got.Slice()) != 0 {
		t.Errorf("Kinds() = %b", got)
	}
}

func TestKindOf(t *testing.T) {
	for _, msg := range everyKind() {
		ev, r := FromProto(msg)
		if r != nil || KindOf(msg) != ev.Kind || ev.Kind == 0 {
			t.Errorf("KindOf = %v, FromProto = %v, %v", KindOf(msg), ev.Kind, r)
		}
	}
	if k := KindOf(nil) + KindOf(&skeinv1.Event{}); k != 0 {
		t.Errorf("kind of nothing: %v", k)
	}
}
