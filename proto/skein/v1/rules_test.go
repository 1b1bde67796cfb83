package skeinv1_test

import (
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestRulesCompile validates every message once: a rule that does not compile would fail at the
// first call.
func TestRulesCompile(t *testing.T) {
	validator, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Messages().Len() {
			message := file.Messages().Get(i)
			err := validator.Validate(dynamicpb.NewMessage(message))
			if err != nil && !strings.HasPrefix(err.Error(), "validation error") {
				t.Errorf("%s: %v", message.FullName(), err)
			}
			count++
		}
	})
	if count < 100 {
		t.Errorf("found %d messages", count)
	}
}

// TestRules tries the rules that are more than a limit on one field.
func TestRules(t *testing.T) {
	for name, tc := range map[string]struct {
		message proto.Message
		want    string // in the error; empty means valid
	}{
		"one list of candidates": {&skeinv1.FilterSeenRequest{UserId: "a", NumericIds: []uint64{1}}, ""},
		"no candidates":          {&skeinv1.FilterSeenRequest{UserId: "a"}, ""},
		"two lists of candidates": {
			&skeinv1.FilterSeenRequest{UserId: "a", NumericIds: []uint64{1}, ItemIds: []string{"1"}},
			"not both",
		},
		"snapshot without a name":   {&skeinv1.TakeSnapshotRequest{}, ""},
		"snapshot with a name":      {&skeinv1.TakeSnapshotRequest{Name: "2026-11-21.a"}, ""},
		"snapshot outside":          {&skeinv1.TakeSnapshotRequest{Name: "../a"}, "name"},
		"partition":                 {&skeinv1.VerifyRequest{Partitions: []uint32{0, 255}}, ""},
		"no partition":              {&skeinv1.VerifyRequest{Partitions: []uint32{256}}, "partitions[0]"},
		"list of followees":         {&skeinv1.ListFollowingRequest{UserId: "a", Kind: skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT.Enum()}, ""},
		"list of excluded users":    {&skeinv1.ListFollowingRequest{UserId: "a", Kind: skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED.Enum()}, "kind"},
		"negative page":             {&skeinv1.ReadFeedRequest{ReaderId: "a", PageSize: -1}, "page_size"},
		"one bad event is no fault": {&skeinv1.PublishRequest{Events: []*skeinv1.Event{{}}}, ""},
		"counters for nothing":      {&skeinv1.BatchGetCountersRequest{Keys: []*skeinv1.CounterKey{{}}}, "target"},
	} {
		t.Run(name, func(t *testing.T) {
			err := protovalidate.Validate(tc.message)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestNames demands one word for who acts, user_id, and one for whom it concerns, target_user_id,
// in every event and in the query that asks about the same two; and that counts are numbers in
// JSON, which 64 bits are not, where they can be.
func TestNames(t *testing.T) {
	ids := map[protoreflect.Name]protoreflect.FieldNumber{
		"user_id": 1, "target_user_id": 2, "owner_id": 0, "board_id": 0, "pin_id": 0, "item_id": 0, "group_id": 0,
	}
	kinds := skeinv1.File_skein_v1_event_proto.Messages().ByName("Event").Oneofs().ByName("kind").Fields()
	messages := []protoreflect.MessageDescriptor{(&skeinv1.FollowPair{}).ProtoReflect().Descriptor()}
	for i := range kinds.Len() {
		messages = append(messages, kinds.Get(i).Message())
	}
	for _, message := range messages {
		for i := range message.Fields().Len() {
			field := message.Fields().Get(i)
			number, known := ids[field.Name()]
			if strings.HasSuffix(string(field.Name()), "_id") && (!known || number != 0 && number != field.Number()) {
				t.Errorf("%s = %d: want user_id = 1 for who acts, target_user_id = 2 for whom it concerns", field.FullName(), field.Number())
			}
		}
	}
	// Neither has a bound: a play may be repeated for ever, and so may what is refused.
	unbounded := map[protoreflect.Name]bool{"play_count": true, "rejected_event_count": true}
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Messages().Len() {
			for j := range file.Messages().Get(i).Fields().Len() {
				field := file.Messages().Get(i).Fields().Get(j)
				counts := strings.HasSuffix(string(field.Name()), "_count") || field.Name() == "total_size"
				wide := field.Kind() == protoreflect.Int64Kind || field.Kind() == protoreflect.Uint64Kind
				if counts && wide != unbounded[field.Name()] {
					t.Errorf("%s is of 64 bits: %v", field.FullName(), wide)
				}
			}
		}
	})
}

// TestReads demands of every method that only reads that it may be called by GET, that it takes a
// position and says at which it read; and of every list that it is paged alike.
func TestReads(t *testing.T) {
	eachFile(func(file protoreflect.FileDescriptor) {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				checkMethod(t, file.Services().Get(i).Methods().Get(j))
			}
		}
	})
}

func checkMethod(t *testing.T, method protoreflect.MethodDescriptor) {
	t.Helper()
	has := func(message protoreflect.MessageDescriptor, names ...protoreflect.Name) {
		t.Helper()
		for _, name := range names {
			if message.Fields().ByName(name) == nil {
				t.Errorf("%s: %s has no %s", method.FullName(), message.Name(), name)
			}
		}
	}
	paged := method.Input().Fields().ByName("page_token") != nil ||
		method.Output().Fields().ByName("next_page_token") != nil
	if paged {
		has(method.Input(), "page_size", "page_token")
		has(method.Output(), "next_page_token")
	}
	options, ok := method.Options().(*descriptorpb.MethodOptions)
	if !ok {
		t.Fatalf("%s has no options", method.FullName())
	}
	isRead := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
	for _, verb := range []string{"Check", "Filter", "BatchGet", "Get", "List", "Read"} {
		if strings.HasPrefix(string(method.Name()), verb) && !isRead {
			t.Errorf("%s is a read without NO_SIDE_EFFECTS", method.FullName())
		}
	}
	// Operations belong to a process and have no place in the log.
	if isRead && !strings.Contains(string(method.Name()), "Operation") {
		has(method.Input(), "at_least")
		has(method.Output(), "position")
	}
}

func eachFile(do func(protoreflect.FileDescriptor)) {
	protoregistry.GlobalFiles.RangeFilesByPackage(skeinv1.File_skein_v1_event_proto.Package(),
		func(file protoreflect.FileDescriptor) bool {
			do(file)
			return true
		})
}
