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

// newFeedOf60Pins makes a feed of 60 pins of two owners, in which every item is shown by two pins,
// one of each owner. Some items have heat.
func newFeedOf60Pins(t *testing.T) (*store.Store, *logBuilder) {
	t.Helper()
	s := openMem(t, inbox.DefaultSettings())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	l := newLogBuilder(t, s)
	l.add(newFollow("ann", "bob"), newFollow("ann", "cid"))
	for i := range 60 {
		if i == 20 {
			mustReadPage(t, s, inbox.Feed{Reader: "ann"}, 1) // begins an inbox, whose floor is within the feed
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

// hideItems returns a function that says which items are hidden, and demands that it is called with
// some items.
func hideItems(t *testing.T, hidden func(item string) bool) func([]string) ([]bool, error) {
	return func(items []string) ([]bool, error) {
		if len(items) == 0 {
			t.Error("asked which of no items are hidden, want a call with items only")
		}
		hide := make([]bool, len(items))
		for i, item := range items {
			hide[i] = hidden(item)
		}
		return hide, nil
	}
}

// TestHiddenPinsLeaveNoGaps checks that pins of hidden items are left out of every page, and that
// all pages but the last are full.
func TestHiddenPinsLeaveNoGaps(t *testing.T) {
	s, l := newFeedOf60Pins(t)
	for name, hidden := range map[string]func(item string) bool{
		"none": func(string) bool { return false },
		"all":  func(string) bool { return true },
		"even": func(item string) bool { return item[len(item)-1]%2 == 0 },
		"most": func(item string) bool { return item != "i3" && item != "i28" },
		"few":  func(item string) bool { return item == "i7" },
	} {
		for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
			for _, once := range []bool{false, true} {
				f := l.inOrder(order, inbox.Feed{Reader: "ann", OnePerItem: once})
				all := mustReadFeed(t, s, f, 100)
				wantAll := 60
				if once {
					wantAll = 30
				}
				if len(all) != wantAll {
					t.Fatalf("got %d pins without hiding, want %d", len(all), wantAll)
				}

				want := slices.DeleteFunc(all, func(p inbox.Pin) bool { return hidden(p.Item) })
				f.HiddenItems = hideItems(t, hidden)
				for _, n := range []int{1, 2, 7, 29, 30, 59, 60, 61} {
					// mustReadFeed checks that all pages but the last are full.
					if got := mustReadFeed(t, s, f, n); !slices.Equal(pinNames(got), pinNames(want)) {
						t.Errorf("%s, order %d, one per item %v, pages of %d: got %v, want %v",
							name, order, once, n, pinNames(got), pinNames(want))
					}
				}
			}
		}
	}
}

// TestPageFailsIfHidingFails checks that an error of the function that says what is hidden is the
// error of the page, on any page, and that the function hides nothing if it returns nothing.
func TestPageFailsIfHidingFails(t *testing.T) {
	s, l := newFeedOf60Pins(t)
	v := mustView(t, s)
	defer v.Close()
	q := inbox.Query(v)
	ctx := context.Background()
	hideErr := errors.New("cannot say what is hidden")
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		f := l.inOrder(order, inbox.Feed{Reader: "ann", HiddenItems: func([]string) ([]bool, error) { return nil, nil }})
		first, err := q.Feed(ctx, f, nil, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(first.Pins) != 10 || first.Next == nil {
			t.Fatalf("order %d: got the first page %+v, want 10 pins and a next page", order, first)
		}

		f.HiddenItems = func([]string) ([]bool, error) { return nil, hideErr }
		for _, after := range []inbox.PageCursor{nil, first.Next} {
			page, err := q.Feed(ctx, f, after, 10)
			if !errors.Is(err, hideErr) {
				t.Errorf("order %d: got error %v, want %v", order, err, hideErr)
			}
			if len(page.Pins) != 0 || page.Next != nil {
				t.Errorf("order %d: got the page %+v with the error, want none", order, page)
			}
		}
	}
}

// TestHidingDuringSessionLosesNothingElse checks that items that are hidden during a session do not
// appear any more, and that nothing else is lost or appears twice.
func TestHidingDuringSessionLosesNothingElse(t *testing.T) {
	s, l := newFeedOf60Pins(t)
	v := mustView(t, s)
	defer v.Close()
	for _, order := range []inbox.Order{inbox.Newest, inbox.Trending} {
		hidden := map[string]bool{}
		f := l.inOrder(order, inbox.Feed{Reader: "ann", HiddenItems: hideItems(t, func(item string) bool { return hidden[item] })})
		all := mustReadFeed(t, s, l.inOrder(order, inbox.Feed{Reader: "ann"}), 100)

		// Hide every item once it was shown.
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
			if p.Next == nil {
				break
			}
			after = p.Next
		}

		// The first pin of each item is shown, and the second only if it is on the same page.
		shownOnPage := map[string]int{}
		for _, p := range all {
			page := len(want) / 7
			if first, ok := shownOnPage[p.Item]; ok && first != page {
				continue
			}
			shownOnPage[p.Item] = page
			want = append(want, p.Owner+"/"+p.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %d:\n got %v\nwant %v", order, got, want)
		}
	}
}
