package pinstore

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// drawRow draws what may be kept of a pin: facts that follow each other in any order.
func drawRow(t *rapid.T) Row {
	boards := rapid.SampledFrom([]string{"", "a", "9"})
	creation := func(at events.Micros) *Creation {
		c := &Creation{
			Time: at, Board: boards.Draw(t, "board"), Item: rapid.SampledFrom([]string{"p", "i"}).Draw(t, "item"),
		}
		if c.Repin = rapid.Bool().Draw(t, "re-pin"); c.Repin {
			c.RepinOwner, c.RepinPin = rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "re-pinned owner"), "q"
		}
		return c
	}
	var r Row
	if rapid.Bool().Draw(t, "history") {
		r.History = creation(1)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "facts") {
		f := Fact{Kind: rapid.SampledFrom([]FactKind{FactCreated, FactMoved, FactBoardDeleted}).Draw(t, "kind"), At: events.Micros(10 + 2*i)}
		if f.Board = boards.Draw(t, "board"); f.Kind == FactCreated {
			f.Creation = creation(f.At)
			f.Creation.Board = f.Board
		}
		r.Add(f)
	}
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		r.AddBoardDeletion(events.Micros(rapid.IntRange(9, 30).Draw(t, "at")), boards.Draw(t, "board"))
	}
	if rapid.Bool().Draw(t, "edited") {
		at := events.Micros(9 + 2*rapid.IntRange(0, 9).Draw(t, "edit")) // the live facts are at even times
		r.Edit = &Edit{At: at, Attributes: []byte(rapid.SampledFrom([]string{"", "edited"}).Draw(t, "attributes"))}
	}
	return r
}

// TestDeletingPossibleBoards: a living pin is on one of its possible boards; the deletion of
// another changes nothing, of that one ends it.
func TestDeletingPossibleBoards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		s := r.State()
		boards := r.PossibleBoards()
		if s.Creation != nil && !slices.Contains(boards, s.Board) {
			t.Fatalf("%+v is on %q, not among %q", r, s.Board, boards)
		}
		for _, board := range []string{"", "a", "9"} {
			gone := r
			gone.Live = slices.Clone(r.Live)
			gone.Add(Fact{Kind: FactBoardDeleted, At: 100, Board: board})
			if slices.Contains(gone.PossibleBoards(), board) {
				t.Fatalf("%q was deleted and is still a possible board of %+v", board, gone)
			}
			if after := gone.State(); s.Creation != nil && (after.Creation == nil) != (board == s.Board) {
				t.Fatalf("%+v: after the deletion of %q it is %+v", r, board, after)
			}
		}
	})
}

// TestClosingHistoryKeepsState: a row whose history is closed has the same state, and nothing but
// that.
func TestClosingHistoryKeepsState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		before := r.State()
		r.CloseHistory(before, 200)
		after := r.State()
		if (before.Creation == nil) != (after.Creation == nil) || before.Board != after.Board || len(r.Live) > 2 || r.History != nil {
			t.Fatalf("%+v became %+v", before, r)
		}
		if after.Creation != nil && (after.Creation.Item != before.Creation.Item || after.Creation.Time != before.Creation.Time ||
			after.Creation.Repin != before.Creation.Repin || after.Creation.RepinOwner != before.Creation.RepinOwner ||
			(after.Creation.RepinPin != "") != (after.Creation.RepinOwner != "")) {
			t.Fatalf("%+v became %+v", before.Creation, after.Creation)
		}
		if after.Creation != nil && (after.Edited() != before.Edited() || !bytes.Equal(after.Attributes(), before.Attributes())) {
			t.Fatalf("%+v became %+v", before, after)
		}
	})
}

// TestOnlyLastEditMatters: an edit holds as long as the pin has lived without a break since. So
// where an edit holds, each later one holds too, and only the last one needs to be kept, whatever
// history says.
func TestOnlyLastEditMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		const end = 40
		holds := func(edit events.Micros) bool {
			for at := edit; at < end; at++ {
				upTo := Row{History: r.History}
				for _, f := range r.Live {
					if f.At <= at {
						upTo.Live = append(upTo.Live, f)
					}
				}
				if s := upTo.State(); s.Creation == nil {
					return false
				}
			}
			return true
		}
		earlier := events.Micros(9 + 2*rapid.IntRange(0, 4).Draw(t, "earlier edit"))
		last := events.Micros(9 + 2*rapid.IntRange(5, 9).Draw(t, "last edit"))
		r.Edit = &Edit{At: last, Attributes: []byte("last")}

		if holds(earlier) && !holds(last) {
			t.Fatalf("%+v: an edit at %d holds, but not the one at %d", r, earlier, last)
		}
		want := events.Micros(0)
		if holds(last) {
			want = last
		}
		if s := r.State(); s.Edited() != want {
			t.Fatalf("%+v was last edited at %d, want %d", r, s.Edited(), want)
		}
	})
}

// TestForgottenRepinOwnerIsInNoFact: a row without a user who was deleted is the same otherwise,
// and its encoding does not name the user.
func TestForgottenRepinOwnerIsInNoFact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		before := r.State()
		owners := r.RepinOwners()
		r.ForgetRepinOwner("bob")
		if slices.Contains(r.RepinOwners(), "bob") || bytes.Contains(r.Append(nil, "p"), []byte("bob")) {
			t.Fatalf("bob is still in %+v", r)
		}
		if want := slices.DeleteFunc(owners, func(o string) bool { return o == "bob" }); !slices.Equal(r.RepinOwners(), want) {
			t.Fatalf("the other users are %q, want %q", r.RepinOwners(), want)
		}
		after := r.State()
		if (before.Creation == nil) != (after.Creation == nil) || before.Creation != nil && !after.Creation.Repin && before.Creation.Repin {
			t.Fatalf("%+v became %+v", before.Creation, after.Creation)
		}
	})
}

// TestOnlyMovesThatMatterAreKept: of many moves the first two and the last are kept, and none to
// where the pin is already.
func TestOnlyMovesThatMatterAreKept(t *testing.T) {
	var r Row
	for i := range 100 {
		for range 2 {
			r.Add(Fact{Kind: FactMoved, At: events.Micros(i), Board: string(rune('a' + i%26))})
		}
	}
	if len(r.Live) != 3 || r.Live[0].At != 0 || r.Live[1].At != 1 || r.Live[2].At != 99 {
		t.Errorf("%+v", r.Live)
	}
}

// TestPinThatLeftBoardSurvivesItsDeletion: a pin was moved to the board of its history, from there
// to another, and was moved again after its first board was deleted. All that was known before the
// history arrived.
func TestPinThatLeftBoardSurvivesItsDeletion(t *testing.T) {
	for _, again := range []string{"b", "c"} {
		var r Row
		r.Add(Fact{Kind: FactMoved, At: 1, Board: "a"})
		r.Add(Fact{Kind: FactMoved, At: 5, Board: "b"})
		r.Add(Fact{Kind: FactMoved, At: 8, Board: again})
		r.History = &Creation{Time: 9, Board: "a", Item: "i"}
		r.AddBoardDeletion(7, "a")
		if s := r.State(); s.Creation == nil || s.Board != again {
			t.Errorf("it is in state %+v, not on %s", s, again)
		}
	}
}

func TestRowsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		row := r.Append(nil, "p")
		again, err := Decode(row, "p")
		if err != nil || !bytes.Equal(again.Append(nil, "p"), row) {
			t.Fatalf("%+v became %+v: %v", r, again, err)
		}
	})
}

// FuzzDecode: what decodes is what encodes.
func FuzzDecode(f *testing.F) {
	c := &Creation{Time: 5, Board: "b", Item: "i", RepinPin: "p", Attributes: []byte{1}}
	for _, r := range []Row{
		{},
		{HistoryClosed: true},
		{Edit: &Edit{At: 9, Attributes: []byte("edited")}, Live: []Fact{{Kind: FactCreated, At: 6, Board: "c", Creation: c}}},
		{History: c},
		{History: c, Live: []Fact{
			{Kind: FactCreated, At: 6, Board: "c", Creation: c}, {Kind: FactMoved, At: 7, Board: "d"}, {Kind: FactBoardDeleted, At: 8, Board: "d"},
		}},
	} {
		f.Add(r.Append(nil, "p"))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		r, err := Decode(row, "p")
		if err != nil {
			return
		}
		again, err := Decode(r.Append(nil, "p"), "p")
		if err != nil || !bytes.Equal(again.Append(nil, "p"), r.Append(nil, "p")) {
			t.Fatalf("%x: %v", row, err)
		}
		r.State()
		r.PossibleBoards()
	})
}
