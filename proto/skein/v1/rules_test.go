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

// TestRulesCompile validates every message once: a rule that does not compile would fail at the first call.
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
		want    string // in the error; empty: valid
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
		"list of followees":         {&skeinv1.ListFollowingRequest{UserId: "a", Kind: skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT}, ""},
		"list of excluded users":    {&skeinv1.ListFollowingRequest{UserId: "a", Kind: skeinv1.FollowKind_FOLLOW_KIND_EXCLUDED}, "kind"},
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

// TestReads demands of every method that only reads that it may be called by GET, that it takes a position and says at
// which it read; and of every list that it is paged alike.
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
