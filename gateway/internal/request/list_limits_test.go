package request

import (
	"errors"
	"fmt"
	"slices"
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

// TestEveryRequestListHasALimit checks that every list of every request has a limit of at most
// 100,000, and that no field is a map, whose items would not be counted.
func TestEveryRequestListHasALimit(t *testing.T) {
	lists := 0
	for _, m := range emptyRequests(t) {
		t.Run(messageName(m), func(t *testing.T) {
			descriptor := m.ProtoReflect().Descriptor()
			expectNoMaps(t, descriptor)
			listCount := 0
			expectLimits(t, newMessageShape(descriptor, "", 1, &listCount))
			lists += listCount
		})
	}
	// Without this, the test would also pass if it found no requests or no lists.
	if lists < 10 {
		t.Errorf("lists of all requests: got %d, want at least 10", lists)
	}
}

// expectLimits fails the test unless all lists of a shape have a limit of 1 to 100,000.
func expectLimits(t *testing.T, shape *messageShape) {
	t.Helper()
	for _, f := range shape.byName {
		if f.countIndex >= 0 && (f.limit < 1 || f.limit > 100_000) {
			t.Errorf("limit of the list %s: got %d, want 1 to 100,000", f.path, f.limit)
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
			t.Errorf("%s is a map, want no maps", field.FullName())
		} else if field.Message() != nil {
			expectNoMaps(t, field.Message())
		}
	}
}

// FuzzListLimits checks that a message that decodes is refused if and only if one of its lists is
// too long. All lists have the limit 2, so that short inputs reach it.
func FuzzListLimits(f *testing.F) {
	addListSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, messageIndex uint8) {
		requests := emptyRequests(t)
		m := requests[int(messageIndex)%len(requests)]
		const limit = 2
		listCount := 0
		shape := newMessageShape(m.ProtoReflect().Descriptor(), "", 1, &listCount)
		setLimits(shape, limit)

		// In the binary encoding, a message field that occurs twice may replace its first value.
		// The items of both values are counted, so the counter may refuse more than the decoded
		// message shows.
		binaryCounter := listCounter{make([]int, listCount)}
		failure := binaryCounter.countMessage(data, shape)
		if proto.Unmarshal(data, m) == nil {
			tooLong := longerListOf(m, limit)
			if tooLong != "" && failure == nil {
				t.Errorf("binary %T %q: got no refusal, want one for the list %q", m, data, tooLong)
			}
		}

		counterOfJSON := jsonCounter{listCounter{make([]int, listCount)}, data}
		failure = counterOfJSON.countObject(shape)
		if protojson.Unmarshal(data, m) == nil {
			tooLong := longerListOf(m, limit)
			if (tooLong != "") != (failure != nil) {
				t.Errorf("JSON %T %q: got the refusal %v, want one for the list %q (none for \"\")", m, data, failure, tooLong)
			}
		}
	})
}

// addListSeeds adds inputs with lists of different lengths, each for every request.
func addListSeeds(f *testing.F) {
	f.Helper()
	requests := len(emptyRequests(f))
	for _, text := range []string{
		`{"userIds":["a","b","c"]}`, `{"user_ids":["a","b"], "boards":[{},{"ownerId":"x"},{}]}`, ` { "userIds" : [ ] , "boards" : null } `,
		`{"user\u0049ds":["a","b","c"]}`, `{"userIds":["]","[\"","}"]}`, `{"userIds":[`, `{"userIds":[}`, `{"userIds":[,,,,]}`, `{`, ``,
		`{"events":[{"served":{"userId":"a","itemIds":["1","2"]}},{"served":{"itemIds":["3"]}}]}`,
		`{"events":[{"userFollowed":{"followerId":"a","userId":"b"},"occurredAt":"2026-01-01T00:00:00Z"},{},{}]}`,
		`{"numericIds":["1",2,"3"],"windowMonths":1}`, `{"partitions":[1,2,3],"projection":"graph"}`, `{"pairs":[{"board":{}},{},{}]}`,
		`{"x":[1,2,3],"userIds":["a","b","c"]}`, `{"userIds":null,"viewerId":1}`, `[1]`, `"a"`, `null`,
	} {
		for i := range requests {
			f.Add([]byte(text), uint8(i))
		}
	}

	publish := mustMarshal(f, &skeinv1.PublishRequest{
		Events: []*skeinv1.Event{newFollow("a", "b"), newServed("a", "1", "2", "3")},
	})
	numbers := mustMarshal(f, &skeinv1.FilterSeenRequest{NumericIds: []uint64{1, 2, 3}})
	for i := range requests {
		f.Add(publish, uint8(i))
		f.Add(slices.Concat(publish, publish), uint8(i))
		f.Add(numbers, uint8(i))
	}
}

func mustMarshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
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
	const binaryItems = 2_000_000
	const jsonItems = 1_000_000
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
		inBinary := []byte(strings.Repeat(c.binaryItem, binaryItems))
		jsonList := strings.TrimSuffix(strings.Repeat(c.jsonItem+",", jsonItems), ",")
		inJSON := []byte(`{"` + c.jsonName + `":[` + jsonList + "]}")
		for encoding, decode := range map[string]func() error{
			"binary": func() error { return UnmarshalProto(inBinary, c.m) },
			"JSON":   func() error { return JSONCodec{"json"}.Unmarshal(inJSON, c.m) },
		} {
			t.Run(messageName(c.m)+" in "+encoding, func(t *testing.T) {
				var err error
				allocations := testing.AllocsPerRun(1, func() { err = decode() })
				if allocations > 60 {
					t.Errorf("allocations: got %v, want at most 60", allocations)
				}
				f, ok := errors.AsType[*apierror.Failure](err)
				if !ok || len(f.Fields) != 1 || f.Fields[0].Field != c.list || !strings.Contains(f.Text, "at most") {
					t.Errorf("got the error %v, want a failure that names only %s and its limit", err, c.list)
				}
				if got := proto.Size(c.m); got != 0 {
					t.Errorf("bytes that were decoded: got %d, want 0", got)
				}
			})
		}
	}
}

// TestCheckOfLongListStopsAtMaxViolations checks that the check of a list with many invalid items
// stops as soon as there are as many violations as an error may have.
func TestCheckOfLongListStopsAtMaxViolations(t *testing.T) {
	var c Checker
	c.RequireIDs("ids", make([]string, 10_000))
	if got := len(c.Violations); got != apierror.MaxViolations {
		t.Errorf("violations: got %d, want %d", got, apierror.MaxViolations)
	}

	// The error does not say how many items are invalid, because the others were not checked.
	wantEnd := fmt.Sprintf("(and at least %d more)", apierror.MaxViolations-1)
	f := apierror.Invalid(c.Violations...)
	if !strings.HasPrefix(f.Text, "ids[0]") || !strings.HasSuffix(f.Text, wantEnd) {
		t.Errorf("text of the error: got %q, want ids[0] at the beginning and %q at the end", f.Text, wantEnd)
	}
}
