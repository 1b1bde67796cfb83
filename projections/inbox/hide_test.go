package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/store"
)

// shelf is a feed of 60 pins of two owners, in which every item is shown by two pins, one of each;
// some have heat.
func shelf(t *testing.T) (*store.Store, *log) {
	t.Helper()
	s := openMem(t, inbox.DefaultSettings())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	l := newLog(t, s)
	l.add(follows("ann", "bob"), follows("ann", "cid"))
	for i := range 60 {
		if i == 20 {
			page(t, s, inbox.Feed{Reader: "ann"}, 1) // the floor lies in the midst
		}
		l.add(events.Event{
			Kind: events.PinCreated, User: []string{"bob", "cid"}[i/30], Pin: fmt.Sprintf("p%02d", i), Item: fmt.Sprint("i", i%30),
		})
		if i%7 == 0 {
			l.add(events.Event{Kind: events.Played, User: "zoe", Item: fmt.Sprint("i", i%30)})
		}
	}
	return s, l
}

// hiding hides some items, and demands that it is not asked for nothing.
func hiding(t *testing.T, hidden func(item string) bool) func([]string) ([]bool, error) {
	return func(items []string) ([]bool, error) {
		if len(items) == 0 {
			t.Error("asked what to hide of nothing")
		}
		hide := make([]bool, len(items))
		for i, item := range items {
			hide[i] = hidden(item)
		}
		return hide, nil
	}
}

// TestHiddenPinsLeaveNoGaps: what is hidden is left out on every page, and pages are full all the
// same unless they are the last.
func TestHiddenPinsLeaveNoGaps(t *testing.T) {
	s, l := shelf(t)
	for name, hidden := range map[string]func(item string) bool{
		"none": func(string) bool { return false },
		"all":  func(string) bool { return true },
		"even": func(item string) bool { return item[len(item)-1]%2 == 0 },
		"most": func(item string) bool { return item != "i3" && item != "i28" },
		"few":  func(item string) bool { return item == "i7" },
	} {
		for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
			for _, once := range []bool{false, true} {
				f := l.in(order, inbox.Feed{Reader: "ann", OnePerItem: once})
				all := feed(t, s, f, 100)
				if want := map[bool]int{false: 60, true: 30}[once]; len(all) != want {
					t.Fatalf("%d pins without hiding, want %d", len(all), want)
				}
				want := slices.DeleteFunc(all, func(p inbox.Pin) bool { return hidden(p.Item) })
				f.HiddenItems = hiding(t, hidden)
				for _, n := range []int{1, 2, 7, 29, 30, 59, 60, 61} {
					// That pages are full or the last is looked at in there.
					if got := feed(t, s, f, n); !slices.Equal(names(got), names(want)) {
						t.Errorf("%s, order %d, one per item %v, pages of %d: %v, want %v", name, order, once, n, names(got), names(want))
					}
				}
			}
		}
	}
}

// TestPageFailsIfHidingFails: an error of who is asked what to hide is the error of the page, on
// whatever page; no answer hides nothing.
func TestPageFailsIfHidingFails(t *testing.T) {
	s, l := shelf(t)
	v := view(t, s)
	defer v.Close()
	q := inbox.Query(v)
	ctx := context.Background()
	broken := errors.New("broken")
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		f := l.in(order, inbox.Feed{Reader: "ann", HiddenItems: func([]string) ([]bool, error) { return nil, nil }})
		first, err := q.Feed(ctx, f, nil, 10)
		if err != nil || len(first.Pins) != 10 || first.Next == nil {
			t.Fatalf("%+v: %v", first, err)
		}
		f.HiddenItems = func([]string) ([]bool, error) { return nil, broken }
		for _, after := range []inbox.PageCursor{nil, first.Next} {
			if p, err := q.Feed(ctx, f, after, 10); !errors.Is(err, broken) || len(p.Pins) != 0 || p.Next != nil {
				t.Errorf("order %d: %+v: %v", order, p, err)
			}
		}
	}
}

// TestHidingDuringSessionLosesNothingElse: what is hidden during a session does not come any more,
// and nothing else is lost or comes twice.
func TestHidingDuringSessionLosesNothingElse(t *testing.T) {
	s, l := shelf(t)
	v := view(t, s)
	defer v.Close()
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		hidden := map[string]bool{}
		f := l.in(order, inbox.Feed{Reader: "ann", HiddenItems: hiding(t, func(item string) bool { return hidden[item] })})
		all := feed(t, s, l.in(order, inbox.Feed{Reader: "ann"}), 100)
		var got, want []string
		var after inbox.PageCursor
		for {
			p, err := inbox.Query(v).Feed(context.Background(), f, after, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, pin := range p.Pins {
				got = append(got, pin.Owner+"/"+pin.ID)
				hidden[pin.Item] = true // it was seen
			}
			if after = p.Next; after == nil {
				break
			}
		}
		// The first of each item, but that of a pair on one page both come.
		shown := map[string]int{}
		pageOf := 0
		for _, p := range all {
			if at, ok := shown[p.Item]; ok && at != pageOf/7 {
				continue
			}
			shown[p.Item] = pageOf / 7
			want = append(want, p.Owner+"/"+p.ID)
			pageOf++
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %d:\n got %v\nwant %v", order, got, want)
		}
	}
}
