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

// fakeFeed lists the pins of a log, two per page. A test may set spoil to change an answer, or err
// to fail.
type fakeFeed struct {
	skeinv1connect.FeedServiceClient

	appended []events.Event // the events of the log
	spoil    func(req *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse)
	err      error
}

func (f *fakeFeed) ListPins(
	_ context.Context, req *connect.Request[skeinv1.ListPinsRequest],
) (*connect.Response[skeinv1.ListPinsResponse], error) {
	if f.err != nil {
		return nil, f.err
	}

	// List the pins of an owner or of a board.
	board := req.Msg.GetBoard()
	pins := f.existingPins(cmp.Or(req.Msg.GetOwnerId(), board.GetOwnerId()))
	if board != nil {
		pins = slices.DeleteFunc(pins, func(ev events.Event) bool { return ev.Board != board.GetBoardId() })
	}

	// The page token is the index of the first pin of the page.
	begin := 0
	if token := req.Msg.GetPageToken(); token != "" {
		var err error
		begin, err = strconv.Atoi(token)
		if err != nil {
			return nil, err
		}
	}

	res := &skeinv1.ListPinsResponse{TotalSize: uint32(len(pins))}
	end := min(begin+2, len(pins))
	for _, ev := range pins[begin:end] {
		res.Entries = append(res.Entries, &skeinv1.FeedEntry{
			OwnerId: ev.User, PinId: ev.Pin, BoardId: ev.Board, ItemId: ev.Item, Attributes: ev.Attributes,
			CreateTime: timestamppb.New(ev.Time.Time()),
		})
	}
	if end < len(pins) {
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
	history := slices.Clone(f.appended)
	slices.SortStableFunc(history, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), bytes.Compare(a.Canonical(), b.Canonical()))
	})

	var pins []events.Event
	for _, ev := range history {
		hasSameID := func(p events.Event) bool { return p.Pin == ev.Pin }
		if ev.User == owner && !slices.ContainsFunc(pins, hasSameID) {
			pins = append(pins, ev)
		}
	}

	slices.SortFunc(pins, func(a, b events.Event) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), events.CompareIDs(a.Pin, b.Pin))
	})
	return pins
}

// importAndComparePins imports a file of pins, and compares it with the answers of a service. It
// returns the result and the differences.
func importAndComparePins(t *testing.T, text string, feed *fakeFeed) (*Comparison, []string, error) {
	t.Helper()
	l := newFakeLog(t)
	o := options(t, l, text)
	o.Kind, o.MaxRejects = Pins, mustAllow(t, "3")
	report := mustRun(t, o)
	feed.appended = l.appended

	var differences []string
	found, err := Compare(t.Context(), CompareOptions{
		Kind: Pins, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, Feed: feed, Pairs: 100,
		MaxRejects: o.MaxRejects,
		Difference: func(text string) { differences = append(differences, text) },
	})
	return found, differences, err
}

const somePins = pinColumns + "ann,p1,bread,i1,bob,p9,a b,,2024-01-01\n" +
	"ann,p1,late,,,,,,2024-01-02\n" + // without effect: the pin exists
	"ann,p2,bread,,,,,,2024-01-03\nann,10,,,,,,,2024-01-03\nann,9,,,,,,YQ==,2024-01-03\n" +
	"bob,p1,z,,,,,,2024-01-01\nbob,p1,y,,,,,,2024-01-01\n" + // at the same time, the event with the smaller encoding counts
	"bob,p2,y,p2,,,,,2024-01-01\nbob,p2,y,,,,,,2024-01-01\n" + // the same twice
	"cid,p1,,,,,,,2026-03-05\ncid,bad id,,,,,,,2024-01-01\nann,half,,,bob,,,,2024-01-01\nann,p7,,,,,a,YQ,2024-01-01\n"

func TestComparedPinsAreEqual(t *testing.T) {
	found, differences, err := importAndComparePins(t, somePins, &fakeFeed{})
	if err != nil {
		t.Fatal(err)
	}
	// Seven pins of three users on four boards, each on the list of its owner and of its board. Two
	// more boards have only rows that make no pin: "late" of ann and "z" of bob.
	want := Comparison{Lists: 9, Entries: 14}
	if *found != want || len(differences) > 0 {
		t.Errorf("got %+v and the differences %v, expected %+v without differences", found, differences, want)
	}
}

// Every field of an answer is compared.
func TestCompareFindsEveryDifferentPinField(t *testing.T) {
	// changePin9 changes the entry of pin 9 of ann, on each page that begins with it.
	changePin9 := func(change func(e *skeinv1.FeedEntry)) func(*skeinv1.ListPinsRequest, *skeinv1.ListPinsResponse) {
		return func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
			if len(res.GetEntries()) > 0 && res.GetEntries()[0].GetPinId() == "9" {
				change(res.GetEntries()[0])
			}
		}
	}

	for _, tt := range []struct {
		name  string
		want  string
		spoil func(*skeinv1.ListPinsRequest, *skeinv1.ListPinsResponse)
	}{
		{
			"pin",
			"pins of ann: 8 is extra: the file does not have it, skein has, since 2024-01-03T00:00:00Z",
			changePin9(func(e *skeinv1.FeedEntry) { e.PinId = "8" }),
		},
		{
			"owner",
			`pins of the board "" of ann: 9: the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of bob`,
			changePin9(func(e *skeinv1.FeedEntry) { e.OwnerId = "bob" }),
		},
		{
			"board",
			`pins of ann: 9: the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of ann on board "x"`,
			changePin9(func(e *skeinv1.FeedEntry) { e.BoardId = "x" }),
		},
		{
			"item",
			`skein has a pin of ann on board "", item x, attributes "a"`,
			changePin9(func(e *skeinv1.FeedEntry) { e.ItemId = "x" }),
		},
		{
			"attributes",
			`the file has a pin of ann on board "", item 9, attributes "a", skein has a pin of ann on board "", item 9, attributes ""`,
			changePin9(func(e *skeinv1.FeedEntry) { e.Attributes = nil }),
		},
		{
			"time",
			"pins of ann: 9 has another time: the file has 2024-01-03T00:00:00Z, skein has 1970-01-01",
			changePin9(func(e *skeinv1.FeedEntry) { e.CreateTime = nil }),
		},
		{
			"total",
			"pins of bob: skein lists 2 and says that there are 3",
			func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) { res.TotalSize++ },
		},
		{
			"the end is missing",
			"pins of ann: p1 is missing: the file has it, since 2024-01-01T00:00:00Z",
			func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) { res.NextPageToken = "" },
		},
		{
			"the order",
			"pins of ann: 9, since 2024-01-03T00:00:00Z, comes after 10, since 2024-01-03T00:00:00Z",
			func(_ *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) { slices.Reverse(res.GetEntries()) },
		},
		{
			"a board is empty",
			`pins of the board "bread" of ann: p1 is missing`,
			func(req *skeinv1.ListPinsRequest, res *skeinv1.ListPinsResponse) {
				if req.GetBoard() != nil {
					res.Entries, res.NextPageToken = nil, ""
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, differences, err := importAndComparePins(t, somePins, &fakeFeed{spoil: tt.spoil})
			if err != nil {
				t.Fatal(err)
			}
			isWanted := func(text string) bool { return strings.Contains(text, tt.want) }
			if found.Differences() == 0 || !slices.ContainsFunc(differences, isWanted) {
				t.Errorf("got %d differences %q, expected one with %q", found.Differences(), differences, tt.want)
			}
		})
	}
}

// If the service has no answers, the comparison says so and finds nothing.
func TestCompareWithoutAnswersFindsNothing(t *testing.T) {
	checkError := func(t *testing.T, err error, texts ...string) {
		t.Helper()
		if !errors.Is(err, ErrNothingToCompare) {
			t.Fatalf("got the error %v, expected %v", err, ErrNothingToCompare)
		}
		for _, text := range texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("got the error %v, expected one with %q", err, text)
			}
		}
	}

	t.Run("pins", func(t *testing.T) {
		feed := &fakeFeed{err: connect.NewError(connect.CodeUnimplemented, errors.New("no inbox here"))}
		_, _, err := importAndComparePins(t, somePins, feed)
		checkError(t, err, "the service does not list pins", "no inbox here")
		if code := connect.CodeOf(err); code != connect.CodeUnimplemented {
			t.Errorf("got the code %v, expected %v", code, connect.CodeUnimplemented)
		}
	})

	t.Run("plays", func(t *testing.T) {
		counters := &fakeCounters{err: connect.NewError(connect.CodeUnimplemented, errors.New("no counters here"))}
		_, _, err := importAndCompareCounts(t, Plays, somePlays, counters)
		checkError(t, err, "the service does not count", "no counters here")
	})
}

// fakeHidden lists the items that the events of a log hide, as one page. spoil may change an
// answer.
type fakeHidden struct {
	skeinv1connect.SeenServiceClient

	appended []events.Event
	spoil    func(res *skeinv1.ListHiddenResponse)
}

func (f *fakeHidden) ListHidden(
	_ context.Context, req *connect.Request[skeinv1.ListHiddenRequest],
) (*connect.Response[skeinv1.ListHiddenResponse], error) {
	hiddenAt := map[string]events.Micros{} // the latest time of each item
	for _, ev := range f.appended {
		if ev.User == req.Msg.GetUserId() {
			hiddenAt[ev.Item] = max(hiddenAt[ev.Item], ev.Time)
		}
	}

	items := slices.SortedFunc(maps.Keys(hiddenAt), func(a, b string) int {
		return cmp.Or(cmp.Compare(hiddenAt[b], hiddenAt[a]), events.CompareIDs(a, b))
	})
	res := &skeinv1.ListHiddenResponse{TotalSize: uint32(len(items))}
	for _, item := range items {
		res.Entries = append(res.Entries, &skeinv1.HiddenEntry{ItemId: item, HideTime: timestamppb.New(hiddenAt[item].Time())})
	}

	if f.spoil != nil {
		f.spoil(res)
	}
	return connect.NewResponse(res), nil
}

// TestHiddenItemsAreCompared checks that the lists of all users in the file are compared, with their
// order, times and totals.
func TestHiddenItemsAreCompared(t *testing.T) {
	const text = "user,item,time\nann,i,2024-01-01\nann,j,2024-01-02\nann,i,2024-01-03\nbob,j,2024-01-02\nbob,bad id,2024-01-02\n"
	for name, tt := range map[string]struct {
		want  string // a difference; empty means that there is none
		spoil func(*skeinv1.ListHiddenResponse)
	}{
		"equal": {"", nil},
		"missing": {
			"hidden items of bob: j is missing",
			func(res *skeinv1.ListHiddenResponse) { res.Entries, res.TotalSize = nil, 0 },
		},
		"extra": {
			"hidden items of ann: k is extra",
			func(res *skeinv1.ListHiddenResponse) { res.Entries[0].ItemId = "k" },
		},
		"the time": {
			"hidden items of bob: j has another time",
			func(res *skeinv1.ListHiddenResponse) { res.Entries[0].HideTime.Seconds++ },
		},
		"the total": {
			"hidden items of ann: skein lists 2 and says that there are 3",
			func(res *skeinv1.ListHiddenResponse) { res.TotalSize++ },
		},
		"the order": {
			"hidden items of ann: i, since 2024-01-03T00:00:00Z, comes after j",
			func(res *skeinv1.ListHiddenResponse) { slices.Reverse(res.GetEntries()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newFakeLog(t)
			o := options(t, l, text)
			o.Kind, o.MaxRejects = HiddenItems, mustAllow(t, "1")
			report := mustRun(t, o)

			var differences []string
			found, err := Compare(t.Context(), CompareOptions{
				Kind: HiddenItems, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, MaxRejects: o.MaxRejects,
				Seen:       &fakeHidden{appended: l.appended, spoil: tt.spoil},
				Difference: func(text string) { differences = append(differences, text) },
			})
			if err != nil {
				t.Fatal(err)
			}

			isWanted := func(text string) bool { return strings.Contains(text, tt.want) }
			switch {
			case tt.want == "" && found.Differences() > 0:
				t.Errorf("got %d differences %q, expected none", found.Differences(), differences)
			case tt.want != "" && (found.Differences() == 0 || !slices.ContainsFunc(differences, isWanted)):
				t.Errorf("got %d differences %q, expected one with %q", found.Differences(), differences, tt.want)
			}
		})
	}
}
