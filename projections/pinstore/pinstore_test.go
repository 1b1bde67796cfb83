package pinstore

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// drawRow draws the row of a pin, with facts that follow each other in any order.
func drawRow(t *rapid.T) Row {
	boards := rapid.SampledFrom([]string{"", "a", "9"})
	creation := func(at events.Micros) *Creation {
		c := &Creation{
			Time: at, Board: boards.Draw(t, "board"), Item: rapid.SampledFrom([]string{"p", "i"}).Draw(t, "item"),
		}
		c.Repin = rapid.Bool().Draw(t, "re-pin")
		if c.Repin {
			c.RepinOwner = rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "re-pinned owner")
			c.RepinPin = "q"
		}
		return c
	}

	// The creation that history knows, and live facts at even times.
	var r Row
	if rapid.Bool().Draw(t, "history") {
		r.History = creation(1)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "facts") {
		f := Fact{
			Kind: rapid.SampledFrom([]FactKind{FactCreated, FactMoved, FactBoardDeleted}).Draw(t, "kind"),
			At:   events.Micros(10 + 2*i),
		}
		f.Board = boards.Draw(t, "board")
		if f.Kind == FactCreated {
			f.Creation = creation(f.At)
			f.Creation.Board = f.Board
		}
		r.Add(f)
	}

	// A board that was deleted, and an edit at an odd time.
	if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
		r.AddBoardDeletion(events.Micros(rapid.IntRange(9, 30).Draw(t, "at")), boards.Draw(t, "board"))
	}
	if rapid.Bool().Draw(t, "edited") {
		at := events.Micros(9 + 2*rapid.IntRange(0, 9).Draw(t, "edit"))
		r.Edit = &Edit{At: at, Attributes: []byte(rapid.SampledFrom([]string{"", "edited"}).Draw(t, "attributes"))}
	}
	return r
}

// pinEvents has everything that happened to a pin and to the boards of its owner.
type pinEvents struct {
	// history has the backfilled creations that have arrived.
	history []*Creation
	// live has the live facts in the order of their times, with the deletions of all boards.
	live []Fact
}

// state applies all facts in order: history first, whenever it arrived.
func (e *pinEvents) state() (s State) {
	for _, c := range e.history {
		if s.Creation == nil || c.Before(s.Creation, "ann", "p") {
			s = State{Creation: c, Board: c.Board}
		}
	}
	for i := range e.live {
		f := &e.live[i]
		switch {
		case f.Kind == FactCreated && s.Creation == nil:
			s = State{Creation: f.Creation, Board: f.Board}
		case f.Kind == FactMoved && s.Creation != nil:
			s.Board = f.Board
		case f.Kind == FactBoardDeleted && s.Creation != nil && s.Board == f.Board:
			s = State{}
		}
	}
	return s
}

// firstDeletion returns the time of the first deletion of a board, or 0 if it was never deleted.
func (e *pinEvents) firstDeletion(board string) events.Micros {
	for _, f := range e.live {
		if f.Kind == FactBoardDeleted && f.Board == board {
			return f.At
		}
	}
	return 0
}

// TestRowKeepsEveryFactThatMatters lets live facts and history arrive in any order. After each of
// them, the row of the pin, which leaves out facts, must have the state that follows from all of
// them.
func TestRowKeepsEveryFactThatMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		boards := rapid.SampledFrom([]string{"", "a", "9"})
		var all pinEvents
		var r Row
		for i := range rapid.IntRange(1, 12).Draw(t, "events") {
			at := events.Micros(100 + i)
			board := boards.Draw(t, "board")
			c := &Creation{Time: at, Board: board, Item: "i"}
			switch kind := rapid.SampledFrom([]string{"create", "move", "move", "delete board", "history"}).Draw(t, "kind"); kind {
			case "create":
				f := Fact{Kind: FactCreated, At: at, Board: board, Creation: c}
				all.live = append(all.live, f)
				r.Add(f)
			case "move":
				f := Fact{Kind: FactMoved, At: at, Board: board}
				all.live = append(all.live, f)
				r.Add(f)
			case "delete board":
				if board == "" {
					continue // the default board is never deleted
				}
				f := Fact{Kind: FactBoardDeleted, At: at, Board: board}
				all.live = append(all.live, f)
				if slices.Contains(r.PossibleBoards(), board) {
					r.Add(f)
				}
			case "history":
				c.Time = events.Micros(rapid.IntRange(1, 3).Draw(t, "time of history"))
				all.history = append(all.history, c)
				if r.History != nil && !c.Before(r.History, "ann", "p") {
					break
				}
				r.History = c
				if deleted := all.firstDeletion(board); deleted != 0 {
					r.AddBoardDeletion(deleted, board)
				}
			}

			got, want := r.State(), all.state()
			if got.Creation != want.Creation || got.Board != want.Board {
				t.Fatalf("got the pin %+v on %q, want %+v on %q\nall facts %+v\nrow %+v",
					got.Creation, got.Board, want.Creation, want.Board, all, r)
			}
		}
	})
}

// TestDeletingPossibleBoards checks that an existing pin is on one of its possible boards. The
// deletion of that board must end the pin, and the deletion of another board must not.
func TestDeletingPossibleBoards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		before := r.State()
		exists := before.Creation != nil
		boards := r.PossibleBoards()
		if exists && !slices.Contains(boards, before.Board) {
			t.Fatalf("%+v is on %q, want one of its possible boards %q", r, before.Board, boards)
		}

		for _, board := range []string{"", "a", "9"} {
			changed := r
			changed.Live = slices.Clone(r.Live)
			changed.Add(Fact{Kind: FactBoardDeleted, At: 100, Board: board})
			if slices.Contains(changed.PossibleBoards(), board) {
				t.Fatalf("%q was deleted, want other possible boards of %+v, got %q", board, changed, changed.PossibleBoards())
			}
			wantEnded := board == before.Board
			after := changed.State()
			if ended := after.Creation == nil; exists && ended != wantEnded {
				t.Fatalf("%+v: after the deletion of %q: got the state %+v, want an ended pin: %v", r, board, after, wantEnded)
			}
		}
	})
}

// TestClosingHistoryKeepsState checks that a row whose history is closed has the same state, and has
// only the facts that the state needs.
func TestClosingHistoryKeepsState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		before := r.State()
		r.CloseHistory(before, 200)
		after := r.State()
		if r.History != nil || len(r.Live) > 2 {
			t.Fatalf("closed row: got %+v, want no history and at most two live facts", r)
		}
		if (before.Creation == nil) != (after.Creation == nil) || before.Board != after.Board {
			t.Fatalf("state of the closed row: got %+v, want %+v", after, before)
		}
		if after.Creation == nil {
			return
		}

		got, want := *after.Creation, *before.Creation
		if got.Item != want.Item || got.Time != want.Time {
			t.Fatalf("creation of the closed row: got %+v, want the item and time of %+v", got, want)
		}
		if got.Repin != want.Repin || got.RepinOwner != want.RepinOwner {
			t.Fatalf("creation of the closed row: got %+v, want the re-pin of %+v", got, want)
		}
		if (got.RepinPin != "") != (got.RepinOwner != "") {
			t.Fatalf("creation of the closed row: got %+v, want a re-pinned pin if and only if there is its owner", got)
		}
		if after.Edited() != before.Edited() || !bytes.Equal(after.Attributes(), before.Attributes()) {
			t.Fatalf("edit of the closed row: got %q at %d, want %q at %d",
				after.Attributes(), after.Edited(), before.Attributes(), before.Edited())
		}
	})
}

// TestOnlyLastEditMatters checks that only the last edit of a pin needs to be kept, whatever history
// says. An edit holds as long as the pin has existed without a break since then. So where an edit
// holds, each later one holds too.
func TestOnlyLastEditMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		const end = 40
		// holds reports whether the pin exists at every time from an edit on.
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
			t.Fatalf("%+v: an edit at %d holds, want the later edit at %d to hold too", r, earlier, last)
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

// TestForgottenRepinOwnerIsInNoFact checks that a row that forgets a deleted user is the same
// otherwise, and that its encoding does not name the user.
func TestForgottenRepinOwnerIsInNoFact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		before := r.State()
		owners := r.RepinOwners()
		r.ForgetRepinOwner("bob")
		if slices.Contains(r.RepinOwners(), "bob") {
			t.Fatalf("got the re-pinned owners %q, want none to be bob", r.RepinOwners())
		}
		if row := r.Append(nil, "p"); bytes.Contains(row, []byte("bob")) {
			t.Fatalf("got the row %q, want one without bob", row)
		}
		wantOwners := slices.DeleteFunc(owners, func(owner string) bool { return owner == "bob" })
		if !slices.Equal(r.RepinOwners(), wantOwners) {
			t.Fatalf("got the other re-pinned owners %q, want %q", r.RepinOwners(), wantOwners)
		}

		after := r.State()
		if (before.Creation == nil) != (after.Creation == nil) {
			t.Fatalf("got the creation %+v, want %+v", after.Creation, before.Creation)
		}
		if before.Creation != nil && before.Creation.Repin && !after.Creation.Repin {
			t.Fatalf("got the creation %+v, want it to stay a re-pin as %+v", after.Creation, before.Creation)
		}
	})
}

// TestOnlyMovesThatMatterAreKept checks that of many moves the first and the last are kept, and no
// move to the board where the pin is already.
func TestOnlyMovesThatMatterAreKept(t *testing.T) {
	var r Row
	for i := range 100 {
		for range 2 {
			r.Add(Fact{Kind: FactMoved, At: events.Micros(i), Board: string(rune('a' + i%26))})
		}
	}
	var times []events.Micros
	for _, f := range r.Live {
		times = append(times, f.At)
	}
	if want := []events.Micros{0, 99}; !slices.Equal(times, want) {
		t.Errorf("got moves at %v, want %v", times, want)
	}
}

// TestPinThatLeftBoardSurvivesItsDeletion moves a pin to the board of its history, from there to
// another, and again after its first board was deleted. All that was known before the history
// arrived. The pin must exist on its last board.
func TestPinThatLeftBoardSurvivesItsDeletion(t *testing.T) {
	for _, lastBoard := range []string{"b", "c"} {
		var r Row
		r.Add(Fact{Kind: FactMoved, At: 1, Board: "a"})
		r.Add(Fact{Kind: FactMoved, At: 5, Board: "b"})
		r.Add(Fact{Kind: FactMoved, At: 8, Board: lastBoard})
		r.History = &Creation{Time: 9, Board: "a", Item: "i"}
		r.AddBoardDeletion(7, "a")
		s := r.State()
		if s.Creation == nil {
			t.Errorf("got the ended pin %+v, want one on %s", s, lastBoard)
		}
		if s.Board != lastBoard {
			t.Errorf("got the board %s, want %s", s.Board, lastBoard)
		}
	}
}

// TestRowsSurviveEncoding checks that a row that is decoded encodes to the same bytes.
func TestRowsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRow(t)
		row := r.Append(nil, "p")
		decoded, err := Decode(row, "p")
		if err != nil {
			t.Fatalf("decode %+v: %v", r, err)
		}
		if got := decoded.Append(nil, "p"); !bytes.Equal(got, row) {
			t.Fatalf("%+v decodes to %+v, which encodes to %x, want %x", r, decoded, got, row)
		}
	})
}

// FuzzDecode checks that a row that is decoded survives encoding, and that its queries do not panic.
func FuzzDecode(f *testing.F) {
	c := &Creation{Time: 5, Board: "b", Item: "i", RepinPin: "p", Attributes: []byte{1}}
	for _, r := range []Row{
		{},
		{HistoryClosed: true},
		{Edit: &Edit{At: 9, Attributes: []byte("edited")}, Live: []Fact{{Kind: FactCreated, At: 6, Board: "c", Creation: c}}},
		{History: c},
		{History: c, Live: []Fact{
			{Kind: FactCreated, At: 6, Board: "c", Creation: c},
			{Kind: FactMoved, At: 7, Board: "d"},
			{Kind: FactBoardDeleted, At: 8, Board: "d"},
		}},
	} {
		f.Add(r.Append(nil, "p"))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		r, err := Decode(row, "p")
		if err != nil {
			return
		}
		encoded := r.Append(nil, "p")
		again, err := Decode(encoded, "p")
		if err != nil {
			t.Fatalf("row %x encodes to %x, which cannot be decoded: %v", row, encoded, err)
		}
		if got := again.Append(nil, "p"); !bytes.Equal(got, encoded) {
			t.Fatalf("row %x encodes to %x and then to %x, want the same bytes", row, encoded, got)
		}
		r.State()
		r.PossibleBoards()
	})
}
