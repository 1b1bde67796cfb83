package events

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// listKindFields returns the members of the oneof of kinds in the message of an event.
func listKindFields() map[Kind]protoreflect.FieldDescriptor {
	fields := map[Kind]protoreflect.FieldDescriptor{}
	members := kindOneof.Fields()
	for i := range members.Len() {
		f := members.Get(i)
		fields[Kind(f.Number())] = f
	}

	return fields
}

// TestKindsMatchMessage demands that the kinds have the numbers and names of the members of the
// message.
func TestKindsMatchMessage(t *testing.T) {
	fields := listKindFields()
	for k, f := range fields {
		if got, ok := ParseKind(string(f.Name())); !ok || got != k {
			t.Errorf("ParseKind(%q): got %v (%v), want %v", f.Name(), got, ok, k)
		}
		if got := k.String(); got != string(f.Name()) {
			t.Errorf("name of kind %d: got %q, want %q", k, got, f.Name())
		}
		if !k.Valid() {
			t.Errorf("kind %v: got an invalid kind, want a valid one", k)
		}
	}

	if n := len(AllKinds.Slice()); n != len(fields) {
		t.Errorf("kinds: got %d, want %d", n, len(fields))
	}
	for _, k := range []Kind{0, firstKind - 1, 24, formerRepinsHidden, formerRepinsShown, lastKind + 1, 63, 64, 255} {
		if k.Valid() || k.Backfillable() || AllKinds.Has(k) {
			t.Errorf("kind %d: got valid %v, backfillable %v and listed %v, want none of them",
				k, k.Valid(), k.Backfillable(), AllKinds.Has(k))
		}
		if k.String() == "" {
			t.Errorf("name of the invalid kind %d: got none, want one", k)
		}
	}

	for _, name := range []string{"user_befriended", ""} {
		if k, ok := ParseKind(name); ok {
			t.Errorf("ParseKind(%q): got %v, want none", name, k)
		}
	}
}

// TestBackfillableKindsArePinned demands that exactly the kinds of its list can be backfilled.
func TestBackfillableKindsArePinned(t *testing.T) {
	want := strings.Fields(`user_followed user_unfollowed board_followed board_unfollowed board_created
		pin_created user_blocked user_muted reacted played served follow_settings_set item_hidden`)
	var got []string
	for _, k := range AllKinds.Slice() {
		if k.Backfillable() {
			got = append(got, k.String())
		}
	}

	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("backfillable kinds (-want +got):\n%s", diff)
	}
}

// TestKindSetHasWhatWasAdded demands that a set has exactly the kinds that were added.
func TestKindSetHasWhatWasAdded(t *testing.T) {
	set := Kinds(Played, UserFollowed)
	for kind, want := range map[Kind]bool{Played: true, UserFollowed: true, Served: false, 0: false} {
		if got := set.Has(kind); got != want {
			t.Errorf("set of played and user_followed has %v: got %v, want %v", kind, got, want)
		}
	}
	if got := set.Slice(); !slices.Equal(got, []Kind{UserFollowed, Played}) {
		t.Errorf("Slice(): got %v, want user_followed and played", got)
	}
	if got := Kinds(); got != 0 || len(got.Slice()) != 0 {
		t.Errorf("Kinds(): got %b, want an empty set", got)
	}
}

// TestKindOfAndFromProtoAgree demands that KindOf and FromProto agree on the kind of every message.
func TestKindOfAndFromProtoAgree(t *testing.T) {
	for _, msg := range newEventsOfEveryKind() {
		ev, r := FromProto(msg)
		if r != nil || ev.Kind == 0 {
			t.Errorf("FromProto of %v: got kind %v and rejection %v, want a kind", msg, ev.Kind, r)
		}
		if got := KindOf(msg); got != ev.Kind {
			t.Errorf("KindOf(%v): got %v, want %v like FromProto", msg, got, ev.Kind)
		}
	}

	for _, msg := range []*skeinv1.Event{nil, {}} {
		if got := KindOf(msg); got != 0 {
			t.Errorf("KindOf(%v): got %v, want 0", msg, got)
		}
	}
}

// TestKindTableCoversTheMessages checks that kindTable has every field of the message of every
// kind, and no other field.
func TestKindTableCoversTheMessages(t *testing.T) {
	var compare func(path string, d protoreflect.MessageDescriptor, tableFields []messageField)
	compare = func(path string, d protoreflect.MessageDescriptor, tableFields []messageField) {
		if len(tableFields) != d.Fields().Len() {
			t.Errorf("%s: got %d fields in kindTable, want %d", path, len(tableFields), d.Fields().Len())
			return
		}
		for _, f := range tableFields {
			fd := d.Fields().ByNumber(f.number)
			switch {
			case fd == nil || f.number > maxFieldNumber:
				t.Errorf("%s: got field %d in kindTable, want one of the message up to %d", path, f.number, maxFieldNumber)
			case f.message != nil:
				compare(path+"."+string(fd.Name()), fd.Message(), f.message)
			case fd.IsList() != (f.field == FieldItems),
				(fd.Kind() == protoreflect.MessageKind) != (f.field == FieldRead || f.field == FieldUntil),
				(fd.Kind() == protoreflect.BoolKind) != (f.field == FieldSettings),
				(fd.Kind() == protoreflect.BytesKind) != (f.field == FieldAttributes),
				(fd.Kind() == protoreflect.Sint64Kind) != (f.field == FieldScore):
				t.Errorf("%s.%s: got a field of another type in kindTable, want %v", path, fd.Name(), fd.Kind())
			}
		}
	}

	records := map[string]Kind{}
	for k, member := range listKindFields() {
		info := kindTable[k]
		compare(string(member.Name()), member.Message(), info.fields)
		if info.topic == 0 {
			t.Errorf("topic of %v: got none, want one", k)
		}
		if (info.topic == TopicRelations) != k.Fields().Has(FieldPeer) {
			t.Errorf("topic of %v: got %v, want relations exactly for kinds with a peer", k, info.topic)
		}

		if other, taken := records[info.recordName]; taken && info.recordName != "" {
			t.Errorf("record names of %v and %v: got the same, want different ones", k, other)
		}
		records[info.recordName] = k
		if got, ok := ParseRecords(info.recordName); ok != (info.recordName != "") || ok && got != k {
			t.Errorf("ParseRecords(%q): got %v (%v), want %v", info.recordName, got, ok, k)
		}
	}
}

// TestFieldsOfMessagesMeanWhatTheirNamesSay checks which field of an Event holds each field of a
// message. It derives that from the names of the fields, and not from kindTable.
func TestFieldsOfMessagesMeanWhatTheirNamesSay(t *testing.T) {
	eventFields := map[string]string{
		"user_id": "User", "target_user_id": "Peer",
		"item_id": "Item", "item_ids": "Items",
		"board_id": "Board", "board.board_id": "Board",
		"pin.owner_id": "User", "pin.pin_id": "Pin",
		"repin_of.owner_id": "RepinUser", "repin_of.pin_id": "RepinPin",
		"title": "Title", "attributes": "Attributes", "score": "Score", "source": "Source", "kind": "Reaction",
		"hide_repins": "Settings", "notify": "Settings", "favorite": "Settings",
		"until": "Until", "read_time": "Read", "seen_time": "Read", "group_id": "Group",
	}
	for k, member := range listKindFields() {
		hasUserID := member.Message().Fields().ByName("user_id") != nil
		msg := &skeinv1.Event{}
		content := msg.ProtoReflect().Mutable(member).Message()
		want := map[string]string{} // the value of each field of the event

		// fill sets all fields of a message.
		var fill func(m protoreflect.Message, path string)
		fill = func(m protoreflect.Message, path string) {
			for i := range m.Descriptor().Fields().Len() {
				fd := m.Descriptor().Fields().Get(i)
				name := path + string(fd.Name())
				field := eventFields[name]

				// Some names mean another field if the message also has a user_id.
				if name == "board.owner_id" {
					field = map[bool]string{true: "Peer", false: "User"}[hasUserID]
				}
				if hasUserID && strings.HasPrefix(name, "pin.") { // a pin that may belong to another user
					field = eventFields["repin_of."+string(fd.Name())]
				}

				switch {
				case fd.IsList():
					m.Mutable(fd).List().Append(protoreflect.ValueOfString(name))
					want[field] = "[" + name + "]"
				case fd.Kind() == protoreflect.StringKind:
					m.Set(fd, protoreflect.ValueOfString(name))
					want[field] = name
				case fd.Kind() == protoreflect.BytesKind:
					m.Set(fd, protoreflect.ValueOfBytes([]byte(name)))
					want[field] = fmt.Sprintf("%d", []byte(name))
				case fd.Kind() == protoreflect.Sint64Kind:
					m.Set(fd, protoreflect.ValueOfInt64(-7))
					want[field] = "-7"
				case fd.Kind() == protoreflect.BoolKind:
					m.Set(fd, protoreflect.ValueOfBool(true))
					want[field] = fmt.Sprint(AllFollowSettings)
				case fd.Message().FullName() == "google.protobuf.Timestamp":
					m.Set(fd, protoreflect.ValueOfMessage((&timestamppb.Timestamp{Seconds: 3, Nanos: 4000}).ProtoReflect()))
					want[field] = "3000004"
				default:
					fill(m.Mutable(fd).Message(), name+".")
				}
			}
		}

		fill(content, "")

		ev, rejection := FromProto(msg)
		if rejection != nil {
			t.Fatalf("FromProto of %v: got rejection %v, want none", msg, rejection)
		}

		// Collect the fields of the event that are set.
		got := map[string]string{}
		for i := range reflect.TypeFor[Event]().NumField() {
			value := reflect.ValueOf(ev).Field(i)
			name := reflect.TypeFor[Event]().Field(i).Name
			if name != "Kind" && !value.IsZero() {
				got[name] = fmt.Sprint(value.Interface())
			}
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event of kind %v (-want +got):\n%s", k, diff)
		}
		if !proto.Equal(ev.Proto(), msg) {
			t.Errorf("message of kind %v: got %v, want %v", k, ev.Proto(), msg)
		}
	}
}
