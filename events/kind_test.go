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

// kindFields are the members of the oneof, by number.
func listKindFields() map[Kind]protoreflect.FieldDescriptor {
	fields := map[Kind]protoreflect.FieldDescriptor{}
	members := kindOneof.Fields()
	for i := range members.Len() {
		f := members.Get(i)
		fields[Kind(f.Number())] = f
	}
	return fields
}

// The numbers and names of kinds are those of the message.
func TestKindsMatchMessage(t *testing.T) {
	fields := listKindFields()
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
func TestBackfillableKindsArePinned(t *testing.T) {
	want := strings.Fields(`user_followed user_unfollowed board_followed board_unfollowed board_created
		pin_created user_blocked user_muted reacted played served repins_hidden`)
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

func TestKindSetHasWhatWasAdded(t *testing.T) {
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

func TestKindOfEveryMessage(t *testing.T) {
	for _, msg := range newEventsOfEveryKind() {
		ev, r := FromProto(msg)
		if r != nil || KindOf(msg) != ev.Kind || ev.Kind == 0 {
			t.Errorf("KindOf = %v, FromProto = %v, %v", KindOf(msg), ev.Kind, r)
		}
	}
	if k := KindOf(nil) + KindOf(&skeinv1.Event{}); k != 0 {
		t.Errorf("kind of nothing: %v", k)
	}
}

// TestKindTableCoversTheMessages: the table has each field of each kind's message, and nothing else.
func TestKindTableCoversTheMessages(t *testing.T) {
	var compare func(path string, d protoreflect.MessageDescriptor, described []messageField)
	compare = func(path string, d protoreflect.MessageDescriptor, described []messageField) {
		if len(described) != d.Fields().Len() {
			t.Errorf("%s: the proto has %d fields, kindTable has %d", path, d.Fields().Len(), len(described))
			return
		}
		for _, f := range described {
			fd := d.Fields().ByNumber(f.number)
			switch {
			case fd == nil || f.number > maxFieldNumber:
				t.Errorf("%s: field %d of kindTable is not in the proto, or above %d", path, f.number, maxFieldNumber)
			case f.message != nil:
				compare(path+"."+string(fd.Name()), fd.Message(), f.message)
			case fd.IsList() != (f.field == FieldItems) || (fd.Kind() == protoreflect.MessageKind) != (f.field == FieldRead) ||
				(fd.Kind() == protoreflect.BytesKind) != (f.field == FieldAttributes) ||
				(fd.Kind() == protoreflect.Sint64Kind) != (f.field == FieldScore):
				t.Errorf("%s.%s: kindTable has a field of another type", path, fd.Name())
			}
		}
	}
	records := map[string]Kind{}
	for k, member := range listKindFields() {
		info := kindTable[k]
		compare(string(member.Name()), member.Message(), info.fields)
		if info.topic == 0 {
			t.Errorf("%v has no topic", k)
		}
		if (info.topic == TopicRelations) != k.Fields().Has(FieldPeer) {
			t.Errorf("%v: a relation is what has a peer", k)
		}
		if other, taken := records[info.recordName]; taken && info.recordName != "" {
			t.Errorf("%v and %v have the same name of records", k, other)
		}
		records[info.recordName] = k
		if got, ok := ParseRecords(info.recordName); ok != (info.recordName != "") || ok && got != k {
			t.Errorf("ParseRecords(%q) = %v, %v", info.recordName, got, ok)
		}
	}
}

// TestFieldsOfMessagesMeanWhatTheirNamesSay: where a flat event has the fields of a message follows from their names, and here not
// from kindTable.
func TestFieldsOfMessagesMeanWhatTheirNamesSay(t *testing.T) {
	eventFields := map[string]string{
		"user_id": "User", "target_user_id": "Peer", "item_id": "Item", "item_ids": "Items", "board_id": "Board", "board.board_id": "Board",
		"pin.owner_id": "User", "pin.pin_id": "Pin", "repin_of.owner_id": "RepinUser", "repin_of.pin_id": "RepinPin",
		"title": "Title", "attributes": "Attributes", "score": "Score", "read_time": "Read", "source": "Source", "kind": "Reaction",
	}
	for k, member := range listKindFields() {
		hasUserID := member.Message().Fields().ByName("user_id") != nil
		msg := &skeinv1.Event{}
		content := msg.ProtoReflect().Mutable(member).Message()
		want := map[string]string{} // what each field of the event must be
		var fill func(m protoreflect.Message, path string)
		fill = func(m protoreflect.Message, path string) {
			for i := range m.Descriptor().Fields().Len() {
				fd := m.Descriptor().Fields().Get(i)
				name := path + string(fd.Name())
				field := eventFields[name]
				if name == "board.owner_id" {
					field = map[bool]string{true: "Peer", false: "User"}[hasUserID]
				}
				if hasUserID && strings.HasPrefix(name, "pin.") { // a pin that need not be the user's
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
			t.Fatal(rejection)
		}
		got := map[string]string{}
		for i := range reflect.TypeFor[Event]().NumField() {
			if f := reflect.ValueOf(ev).Field(i); !f.IsZero() && reflect.TypeFor[Event]().Field(i).Name != "Kind" {
				got[reflect.TypeFor[Event]().Field(i).Name] = fmt.Sprint(f.Interface())
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-expected +got):\n%s", k, diff)
		}
		if !proto.Equal(ev.Proto(), msg) {
			t.Errorf("%v: expected %v back, got %v", k, msg, ev.Proto())
		}
	}
}
