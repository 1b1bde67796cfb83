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
		t.Run(messageName(m), func(t *testing.T) {
			d := m.ProtoReflect().Descriptor()
			expectNoMaps(t, d)
			listCount := 0
			expectLimits(t, newMessageShape(d, "", 1, &listCount))
			lists += listCount
		})
	}
	// Without this, the test would also pass if it found no requests or no lists.
	if lists < 10 {
		t.Errorf("the requests have %d lists, expected at least 10", lists)
	}
}

// expectLimits fails the test unless all lists of a shape have a limit of 1 to 100 000.
func expectLimits(t *testing.T, shape *messageShape) {
	t.Helper()
	for _, f := range shape.byName {
		if f.countIndex >= 0 && (f.limit < 1 || f.limit > 100_000) {
			t.Errorf("the limit of the list %s is %d, expected 1 to 100 000", f.path, f.limit)
		}
		if f.message != nil {
			expectLimits(t, f.message)
		}
	}
}

// expectNoMaps fails the test if a message, or one that it contains, has a field that is a map.
func expectNoMaps(t *testing.T, d protoreflect.MessageDescriptor) {
	t.Helper()
	for i := range d.Fields().Len() {
		field := d.Fields().Get(i)
		if field.IsMap() {
			t.Errorf("%s is a map, expected no maps", field.FullName())
		} else if field.Message() != nil {
			expectNoMaps(t, field.Message())
		}
	}
}

// FuzzListLimits demands that a message that decodes is refused if and only if one of its lists is
// too long. All lists have the limit 2, so that short inputs reach it.
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
		publish := &skeinv1.PublishRequest{Events: []*skeinv1.Event{followEvent("a", "b"), servedEvent("a", "1", "2", "3")}}
		data, _ := proto.Marshal(publish)
		f.Add(data, uint8(i))
		f.Add(append(data, data...), uint8(i))
		numbers, _ := proto.Marshal(&skeinv1.FilterSeenRequest{NumericIds: []uint64{1, 2, 3}})
		f.Add(numbers, uint8(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, messageIndex uint8) {
		all := emptyRequests(t)
		m := all[int(messageIndex)%len(all)]
		const limit = 2
		listCount := 0
		shape := newMessageShape(m.ProtoReflect().Descriptor(), "", 1, &listCount)
		setLimits(shape, limit)

		// In the binary encoding, a message field that occurs twice may replace its first value. The
		// items of both values are counted, so the counter may refuse more than the decoded message
		// shows.
		binary := listCounter{make([]int, listCount)}
		failure := binary.countMessage(data, shape)
		if proto.Unmarshal(data, m) == nil {
			tooLong := longerListOf(m, limit)
			if tooLong != "" && failure == nil {
				t.Errorf("binary %T %q: not refused, expected a refusal of the list %q", m, data, tooLong)
			}
		}

		inJSON := jsonCounter{listCounter{make([]int, listCount)}, data}
		failure = inJSON.countObject(shape)
		if protojson.Unmarshal(data, m) == nil {
			tooLong := longerListOf(m, limit)
			if (tooLong != "") != (failure != nil) {
				t.Errorf("JSON %T %q: the refusal is %v, expected one for the list %q (none for \"\")", m, data, failure, tooLong)
			}
		}
	})
}

// longerListOf returns the path of a list of m that has more items than the limit, or "" if there
// is none.
func longerListOf(m proto.Message, limit int) string {
	items := map[string]int{}
	countItems(m.ProtoReflect(), "", items)
	for path, n := range items {
		if n > limit {
			return path
		}
	}
	return ""
}

// TestTooLongListIsRefusedBeforeDecoding sends bodies with one or two million empty items. Each
// must be refused for its length, with the name of the list, before it is decoded.
func TestTooLongListIsRefusedBeforeDecoding(t *testing.T) {
	const items = 2_000_000
	for _, c := range []struct {
		m proto.Message
		// list is the list that is too long, and jsonName its name in JSON.
		list, jsonName string
		// binaryItem and jsonItem are an empty item of the list in both encodings.
		binaryItem, jsonItem string
	}{
		{&skeinv1.BatchGetRelationshipsRequest{}, "user_ids", "userIds", "\x12\x00", `""`},
		{&skeinv1.BatchGetFollowCountsRequest{}, "user_ids", "userIds", "\x0a\x00", `""`},
		{&skeinv1.CheckFollowsRequest{}, "pairs", "pairs", "\x0a\x00", `{}`},
		{&skeinv1.PublishRequest{}, "events", "events", "\x0a\x00", `{}`},
		{&skeinv1.FilterSeenRequest{}, "item_ids", "itemIds", "\x12\x00", `""`},
	} {
		data := []byte(strings.Repeat(c.binaryItem, items))
		jsonItems := strings.TrimSuffix(strings.Repeat(c.jsonItem+",", items/2), ",")
		text := []byte(`{"` + c.jsonName + `":[` + jsonItems + "]}")
		for encoding, decode := range map[string]func() error{
			"binary": func() error { return UnmarshalProto(data, c.m) },
			"JSON":   func() error { return JSONCodec{"json"}.Unmarshal(text, c.m) },
		} {
			t.Run(messageName(c.m)+" in "+encoding, func(t *testing.T) {
				var err error
				if n := testing.AllocsPerRun(1, func() { err = decode() }); n > 60 {
					t.Errorf("got %v allocations, expected at most 60", n)
				}
				f, ok := errors.AsType[*apierror.Failure](err)
				if !ok || len(f.Fields) != 1 || f.Fields[0].Field != c.list || !strings.Contains(f.Text, "at most") {
					t.Errorf("got %v, expected a failure that names only %s and its limit", err, c.list)
				}
				if size := proto.Size(c.m); size != 0 {
					t.Errorf("%d bytes were decoded, expected none", size)
				}
			})
		}
	}
}

// TestCheckOfLongListStopsAtMaxViolations demands that the check of a list with many invalid items
// stops as soon as there are as many violations as an error may have.
func TestCheckOfLongListStopsAtMaxViolations(t *testing.T) {
	var c Checker
	c.RequireIDs("ids", make([]string, 10_000))
	if len(c.Violations) != apierror.MaxViolations {
		t.Errorf("got %d violations, expected %d", len(c.Violations), apierror.MaxViolations)
	}

	others := fmt.Sprintf("(and at least %d more)", apierror.MaxViolations-1)
	f := apierror.Invalid(c.Violations...)
	if !strings.HasPrefix(f.Text, "ids[0]") || !strings.HasSuffix(f.Text, others) {
		t.Errorf("got the text %q, expected it to begin with ids[0] and end with %q", f.Text, others)
	}
}
