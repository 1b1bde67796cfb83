package importer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// fakeFeed lists the pins of a log, two per page. spoil may change an answer.
type fakeFeed struct {
	skeinv1connect.FeedServiceClient

	taken []events.Event
	spoil func(req *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse)
	err   error
}

func (f *fakeFeed) ListPins(
	_ context.Context, req *connect.Request[skeinv1.ListPinsRequest],
) (*connect.Response[skeinv1.ListPinsResponse], error) {
	if f.err != nil {
		return nil, f.err
	}

	owner, board := req.Msg.GetOwnerId(), req.Msg.GetBoard()
	owner = cmp.Or(owner, board.GetOwnerId())
	living := f.existingPins(owner)
	if board != nil {
		living = slices.DeleteFunc(living, func(ev events.Event) bool { return ev.Board != board.GetBoardId() })
	}

	at := 0
	if token := req.Msg.GetPageToken(); token != "" {
		var err error
		if at, err = strconv.Atoi(token); err != nil {
			return nil, err
		}
	}

	res := &skeinv1.ListPinsResponse{TotalSize: uint32(len(living))}
	end := min(at+2, len(living))
	for _, ev := range living[at:end] {
		res.Entries = append(res.Entries, &skeinv1.FeedEntry{
			OwnerId: ev.User, PinId: ev.Pin, BoardId: ev.Board, ItemId: ev.Item, Attributes: ev.Attributes,
			CreateTime: timestamppb.New(ev.Time.Time()),
		})
	}
	if end < len(living) {
		res.NextPageToken = strconv.Itoa(end)
	}

	if f.spoil != nil {
		f.spoil(req.Msg, res)
	}
	return connect.NewResponse(res), nil
}

// existingPins returns the pins of an owner, newest first. If a pin was created several times, the
// first one in the order of history counts.
func (f *fakeFeed) existingPins(owner string) []events.Event {
	history := slices.Clone(f.taken)
	slices.SortStableFunc(history, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), bytes.Compare(a.Canonical(), b.Canonical()))
	})

	var pins []events.Event
	for _, ev := range history {
		same := func(p events.Event) bool { return p.Pin == ev.Pin }
		if ev.User == owner && !slices.ContainsFunc(pins, same) {
			pins = append(pins, ev)
		}
	}

	slices.SortFunc(pins, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), events.CompareIDs(a.Pin, b.Pin))
	})
	return pins
}

// importAndComparePins imports a file of pins, and compares it with the answers of a service.
func importAndComparePins(t *testing.T, text string, feed *fakeFeed) (*Comparison, []string, error) {
	t.Helper()
	l := newFakeLog(t)
	o := options(t, l, text)
	o.Kind, o.MaxRejects = Pins, mustAllow(t, "3")
	report := mustRun(t, o)
	feed.taken = l.taken

	var told []string
	found, err := Compare(t.Context(), CompareOptions{
		Kind: Pins, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, Feed: feed, Pairs: 100,
		MaxRejects: o.MaxRejects,
		Difference: func(text string) { told = append(told, text) },
	})
	return found, told, err
}

const somePins = pinColumns + "ann,p1,bread,i1,bob,p9,a b,,2024-01-01\n" +
	"ann,p1,late,,,,,,2024-01-02\n" + // without effect: the pin exists
	"ann,p2,bread,,,,,,2024-01-03\nann,10,,,,,,,2024-01-03\nann,9,,,,,,YQ==,2024-01-03\n" +
	"bob,p1,z,,,,,,2024-01-01\nbob,p1,y,,,,,,2024-01-01\n" + // at the same time, the event with the smaller encoding counts
	"bob,p2,y,p2,,,,,2024-01-01\nbob,p2,y,,,,,,2024-01-01\n" + // the same twice
	"cid,p1,,,,,,,2026-03-05\ncid,bad id,,,,,,,2024-01-01\nann,half,,,bob,,,,2024-01-01\nann,p7,,,,,a,YQ,2024-01-01\n"

func TestComparedPinsAreEqual(t *testing.T) {
	found, told, err := importAndComparePins(t, somePins, &fakeFeed{})
	if err != nil {
		t.Fatal(err)
	}
	// Seven pins of three users on four boards, each on the list of its owner and of its board. Two
	// more boards have only rows that make no pin: "late" of ann and "z" of bob.
	want := Comparison{Lists: 9, Entries: 14}
	if *found != want || len(told) > 0 {
		t.Errorf("got %+v and the differences %v, expected %+v without differences", found, told, want)
	}
}

// Every field of an answer is compared.
func TestCompareFindsEveryDifferentPinField(t *testing.T) {
	first := func(change func(e *skeinv1.FeedEntry)) func(*skeinv1.ListPinsRequest, *skeinv1.ListPinsResponse) {
		return func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
			if len(res.GetEntries()) > 0 && res.GetEntries()[0].GetPinId() == "9" {
				change(res.GetEntries()[0])
			}
		}
	}
	for _, tt := range []struct {
		name, want string
		spoil      func(*skeinv1.ListPinsRequest, *skeinv1.ListPinsResponse)
	}{
		{"pin", "pins of ann: 8 is extra: the file does not have it, skein has, since 2024-01-03T00:00:00Z", first(func(e *skeinv1.FeedEntry) { e.PinId = "8" })},
		{"owner", `pins of the board "" of ann: 9: the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of bob`, first(func(e *skeinv1.FeedEntry) { e.OwnerId = "bob" })},
		{"board", `pins of ann: 9: the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of ann on board "x"`, first(func(e *skeinv1.FeedEntry) { e.BoardId = "x" })},
		{"item", `skein has a pin of ann on board "", item x, attributes "a"`, first(func(e *skeinv1.FeedEntry) { e.ItemId = "x" })},
		{
			"attributes", `the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of ann on board "", item 9, attributes ""`,
			first(func(e *skeinv1.FeedEntry) { e.Attributes = nil }),
		},
		{"time", "pins of ann: 9 has another time: the file has 2024-01-03T00:00:00Z, skein has 1970-01-01", first(func(e *skeinv1.FeedEntry) { e.CreateTime = nil })},
		{"total", "pins of bob: skein lists 2 and says that there are 3", func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
			res.TotalSize++
		}},
		{"the end is missing", "pins of ann: p1 is missing: the file has it, since 2024-01-01T00:00:00Z", func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
			res.NextPageToken = ""
		}},
		{
			"the order", "pins of ann: 9, since 2024-01-03T00:00:00Z, comes after 10, since 2024-01-03T00:00:00Z",
			func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) { slices.Reverse(res.GetEntries()) },
		},
		{
			"a board is empty", `pins of the board "bread" of ann: p1 is missing`,
			func(req *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
				if req.GetBoard() != nil {
					res.Entries, res.NextPageToken = nil, ""
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, told, err := importAndComparePins(t, somePins, &fakeFeed{spoil: tt.spoil})
			if err != nil {
				t.Fatal(err)
			}
			has := func(text string) bool { return strings.Contains(text, tt.want) }
			if found.Differences() == 0 || !slices.ContainsFunc(told, has) {
				t.Errorf("got %d differences %q, expected one with %q", found.Differences(), told, tt.want)
			}
		})
	}
}

// If the service has no answers, the comparison says so and finds nothing.
func TestCompareWithoutAnswersFindsNothing(t *testing.T) {
	feed := &fakeFeed{err: connect.NewError(connect.CodeUnimplemented, errors.New("no inbox here"))}
	_, _, err := importAndComparePins(t, somePins, feed)
	if !errors.Is(err, ErrNothingToCompare) || connect.CodeOf(err) != connect.CodeUnimplemented ||
		!strings.Contains(err.Error(), "the service does not list pins") || !strings.Contains(err.Error(), "no inbox here") {
		t.Errorf("pins: got %v, expected ErrNothingToCompare with the reason", err)
	}

	_, _, err = importAndCompareCounts(t, Plays, somePlays, &fakeCounters{err: connect.NewError(connect.CodeUnimplemented, errors.New("no counters here"))})
	if !errors.Is(err, ErrNothingToCompare) || !strings.Contains(err.Error(), "the service does not count") ||
		!strings.Contains(err.Error(), "no counters here") {
		t.Errorf("plays: got %v, expected ErrNothingToCompare with the reason", err)
	}
}

// fakeHidden lists the items that the events of a log hide, as one page. spoil may change an
// answer.
type fakeHidden struct {
	skeinv1connect.SeenServiceClient

	taken []events.Event
	spoil func(res *skeinv1.ListHiddenResponse)
}

func (f *fakeHidden) ListHidden(
	_ context.Context, req *connect.Request[skeinv1.ListHiddenRequest],
) (*connect.Response[skeinv1.ListHiddenResponse], error) {
	latest := map[string]events.Micros{}
	for _, ev := range f.taken {
		if ev.User == req.Msg.GetUserId() {
			latest[ev.Item] = max(latest[ev.Item], ev.Time)
		}
	}
	items := slices.SortedFunc(maps.Keys(latest), func(a, b string) int {
		return cmp.Or(cmp.Compare(latest[b], latest[a]), events.CompareIDs(a, b))
	})
	res := &skeinv1.ListHiddenResponse{TotalSize: uint32(len(items))}
	for _, item := range items {
		res.Entries = append(res.Entries, &skeinv1.HiddenEntry{ItemId: item, HideTime: timestamppb.New(latest[item].Time())})
	}
	if f.spoil != nil {
		f.spoil(res)
	}
	return connect.NewResponse(res), nil
}

// TestHiddenItemsAreCompared: the lists of all users in the file are compared, with their order,
// times and totals.
func TestHiddenItemsAreCompared(t *testing.T) {
	const text = "user,item,time\nann,i,2024-01-01\nann,j,2024-01-02\nann,i,2024-01-03\nbob,j,2024-01-02\nbob,bad id,2024-01-02\n"
	for name, tt := range map[string]struct {
		want  string
		spoil func(*skeinv1.ListHiddenResponse)
	}{
		"equal":    {"", nil},
		"missing":  {"hidden items of bob: j is missing", func(res *skeinv1.ListHiddenResponse) { res.Entries, res.TotalSize = nil, 0 }},
		"extra":    {"hidden items of ann: k is extra", func(res *skeinv1.ListHiddenResponse) { res.Entries[0].ItemId = "k" }},
		"the time": {"hidden items of bob: j has another time", func(res *skeinv1.ListHiddenResponse) { res.Entries[0].HideTime.Seconds++ }},
		"the total": {
			"hidden items of ann: skein lists 2 and says that there are 3", func(res *skeinv1.ListHiddenResponse) { res.TotalSize++ },
		},
		"the order": {
			"hidden items of ann: i, since 2024-01-03T00:00:00Z, comes after j", func(res *skeinv1.ListHiddenResponse) { slices.Reverse(res.GetEntries()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, text)
			o.Kind, o.MaxRejects = HiddenItems, mustAllow(t, "1")
			report := mustRun(t, o)

			var told []string
			found, err := Compare(t.Context(), CompareOptions{
				Kind: HiddenItems, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, MaxRejects: o.MaxRejects,
				Seen:       &fakeHidden{taken: l.taken, spoil: tt.spoil},
				Difference: func(text string) { told = append(told, text) },
			})
			if err != nil {
				t.Fatal(err)
			}
			has := func(text string) bool { return strings.Contains(text, tt.want) }
			if (found.Differences() > 0) != (tt.want != "") || tt.want != "" && !slices.ContainsFunc(told, has) {
				t.Errorf("got %d differences %q, expected one with %q", found.Differences(), told, tt.want)
			}
		})
	}
}
