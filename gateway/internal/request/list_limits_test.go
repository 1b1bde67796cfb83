package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/skein-feed/skein/gateway/internal/apierror"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// emptyRequests returns an empty request of each method of the API.
func emptyRequests(t testing.TB) (all []proto.Message) {
	t.Helper()
	for _, service := range apiServices() {
		for i := range service.Methods().Len() {
			in := service.Methods().Get(i).Input()
			kind, err := protoregistry.GlobalTypes.FindMessageByName(in.FullName())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, kind.New().Interface())
		}
	}
	return all
}

// countItems adds the number of items of all lists in a message to counts, by the path of the list.
func countItems(m protoreflect.Message, prefix string, counts map[string]int) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(fd.Name())
		switch {
		case fd.IsList():
			counts[path] += v.List().Len()
			if fd.Message() != nil {
				for i := range v.List().Len() {
					countItems(v.List().Get(i).Message(), path+".", counts)
				}
			}
		case fd.Message() != nil:
			countItems(v.Message(), path+".", counts)
		}
		return true
	})
}

// setLimits sets the limit of all lists of a shape.
func setLimits(shape *messageShape, limit int) {
	shape.minLimit = 0
	for _, f := range shape.byName {
		if f.countIndex >= 0 {
			f.limit = limit
		}
		if f.message != nil {
			setLimits(f.message, limit)
		}
	}
}

// TestEveryRequestListHasALimit demands that every list of every request has a limit of at most 100
// 000, and that no field is a map, whose items would not be counted.
func TestEveryRequestListHasALimit(t *testing.T) {
	lists := 0
	for _, m := range emptyRequests(t) {
		// Each list has a limit.
		count := 0
		shape := newMessageShape(m.ProtoReflect().Descriptor(), "", 1, &count)
		var walk func(*messageShape)
		walk = func(shape *messageShape) {
			for _, f := range shape.byName {
				if f.countIndex >= 0 && (f.limit < 1 || f.limit > 100_000) {
					t.Errorf("%T: the limit of the list %s is %d, expected 1 to 100 000", m, f.path, f.limit)
				}
				if f.message != nil {
					walk(f.message)
				}
			}
		}
		walk(shape)
		lists += count

		// No field is a map.
		var expectNoMaps func(protoreflect.MessageDescriptor)
		expectNoMaps = func(d protoreflect.MessageDescriptor) {
			for i := range d.Fields().Len() {
				if fd := d.Fields().Get(i); fd.IsMap() {
					t.Errorf("%s is a map", fd.FullName())
				} else if fd.Message() != nil {
					expectNoMaps(fd.Message())
				}
			}
		}
		expectNoMaps(m.ProtoReflect().Descriptor())
	}
	if lists < 10 {
		t.Errorf("the requests have %d lists, expected at least 10", lists)
	}
}

// FuzzListLimits demands that a message that decodes is refused exactly if one of its lists is too
// long.
func FuzzListLimits(f *testing.F) {
	for _, text := range []string{
		`{"userIds":["a","b","c"]}`, `{"user_ids":["a","b"], "boards":[{},{"ownerId":"x"},{}]}`, ` { "userIds" : [ ] , "boards" : null } `,
		`{"user\u0049ds":["a","b","c"]}`, `{"userIds":["]","[\"","}"]}`, `{"userIds":[`, `{"userIds":[}`, `{"userIds":[,,,,]}`, `{`, ``,
		`{"events":[{"served":{"userId":"a","itemIds":["1","2"]}},{"served":{"itemIds":["3"]}}]}`,
		`{"events":[{"userFollowed":{"followerId":"a","userId":"b"},"occurredAt":"2026-01-01T00:00:00Z"},{},{}]}`,
		`{"numericIds":["1",2,"3"],"windowMonths":1}`, `{"partitions":[1,2,3],"projection":"graph"}`, `{"pairs":[{"board":{}},{},{}]}`,
		`{"x":[1,2,3],"userIds":["a","b","c"]}`, `{"userIds":null,"viewerId":1}`, `[1]`, `"a"`, `null`,
	} {
		for i := range uint8(40) {
			f.Add([]byte(text), i)
		}
	}
	for i := range emptyRequests(f) {
		publish := &skeinv1.PublishRequest{Events: []*skeinv1.Event{follow("a", "b"), served("a", "1", "2", "3")}}
		data, _ := proto.Marshal(publish)
		f.Add(data, uint8(i))
		f.Add(append(data, data...), uint8(i))
		numbers, _ := proto.Marshal(&skeinv1.FilterSeenRequest{NumericIds: []uint64{1, 2, 3}})
		f.Add(numbers, uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		all := emptyRequests(t)
		m := all[int(which)%len(all)]
		const limit = 2
		check := func(encoding string, refusal *apierror.Failure, decodeErr error, isExact bool) {
			if decodeErr != nil {
				return
			}
			items := map[string]int{}
			tooLong := ""
			countItems(m.ProtoReflect(), "", items)
			for path, n := range items {
				if n > limit {
					tooLong = path
				}
			}
			if tooLong != "" && refusal == nil || isExact && tooLong == "" && refusal != nil {
				t.Errorf("%s %T %q: the list that is too long is %q, the refusal is %v", encoding, m, data, tooLong, refusal)
			}
		}
		newCounter := func() (*messageShape, listCounter) {
			count := 0
			shape := newMessageShape(m.ProtoReflect().Descriptor(), "", 1, &count)
			setLimits(shape, limit)
			return shape, listCounter{make([]int, count)}
		}
		shape, counter := newCounter()
		// A field that is there twice in the binary encoding is merged, or replaced by the last
		// one, but all of its items are counted.
		check("binary", counter.countMessage(data, shape), proto.Unmarshal(data, m), false)
		shape, counter = newCounter()
		jsonLists := jsonCounter{counter, data}
		check("JSON", jsonLists.countObject(shape), protojson.Unmarshal(data, m), true)
	})
}

// TestTooLongListIsRefusedBeforeDecoding sends bodies of two million empty items. Each must be
// refused for its length, with the name of the list, before it is decoded.
func TestTooLongListIsRefusedBeforeDecoding(t *testing.T) {
	const items = 2_000_000
	for _, c := range []struct {
		m          proto.Message
		binary     string
		text, want string
	}{
		{&skeinv1.BatchGetRelationshipsRequest{}, "\x12\x00", `{"userIds":[` + strings.Repeat(`"",`, items/2), "user_ids"},
		{&skeinv1.BatchGetFollowCountsRequest{}, "\x0a\x00", `{"userIds":[` + strings.Repeat(`"",`, items/2), "user_ids"},
		{&skeinv1.CheckFollowsRequest{}, "\x0a\x00", `{"pairs":[` + strings.Repeat(`{},`, items/2), "pairs"},
		{&skeinv1.PublishRequest{}, "\x0a\x00", `{"events":[` + strings.Repeat(`{},`, items/2), "events"},
		{&skeinv1.FilterSeenRequest{}, "\x12\x00", `{"itemIds":[` + strings.Repeat(`"",`, items/2), "item_ids"},
	} {
		data := []byte(strings.Repeat(c.binary, items))
		text := []byte(strings.TrimSuffix(c.text, ",") + "]}")
		for encoding, decode := range map[string]func() error{
			"binary": func() error { return UnmarshalProto(data, c.m) },
			"JSON":   func() error { return JSONCodec{"json"}.Unmarshal(text, c.m) },
		} {
			t.Run(fmt.Sprintf("%s in %s", c.m.ProtoReflect().Descriptor().Name(), encoding), func(t *testing.T) {
				var err error
				if n := testing.AllocsPerRun(1, func() { err = decode() }); n > 60 {
					t.Errorf("got %v allocations, expected at most 60", n)
				}
				f, ok := errors.AsType[*apierror.Failure](err)
				if !ok || len(f.Fields) != 1 || f.Fields[0].Field != c.want || !strings.Contains(f.Text, "at most") {
					t.Errorf("got %v, expected a failure that names only %s and its limit", err, c.want)
				}
				if size := proto.Size(c.m); size != 0 {
					t.Errorf("%d bytes were decoded, expected none", size)
				}
			})
		}
	}
}

// TestChecksStopAtTheLargestError demands that the check of a list with many invalid items stops as
// soon as the error has all the violations that it may have.
func TestChecksStopAtTheLargestError(t *testing.T) {
	var c Checker
	c.RequireIDs("ids", make([]string, 10_000))
	if len(c.Violations) != apierror.MaxViolations {
		t.Errorf("got %d violations, expected %d", len(c.Violations), apierror.MaxViolations)
	}
	others := fmt.Sprintf("(and at least %d more)", apierror.MaxViolations-1)
	f := apierror.Invalid(c.Violations...)
	if !strings.HasPrefix(f.Text, "ids[0]") || !strings.HasSuffix(f.Text, others) {
		t.Errorf("got the text %q, expected the first id and the number of the others", f.Text)
	}
}
