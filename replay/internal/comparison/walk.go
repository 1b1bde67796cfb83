package comparison

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// compareSides compares all expected entries with all answers. Both are sorted, so it walks through
// them side by side.
func (c *Comparer) compareSides() error {
	expected, err := c.expected.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = expected.Close() }() // it was only read
	answered, err := c.answered.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = answered.Close() }() // it was only read

	w := &sideBySide{Comparer: c, listedEntries: map[List]int{}}
	w.expectedGroups, err = newGroupReader(expected)
	if err != nil {
		return err
	}
	w.answeredGroups, err = newGroupReader(answered)
	if err != nil {
		return err
	}
	return w.compareAll()
}

// sideBySide walks through the two sides at once.
type sideBySide struct {
	*Comparer
	expectedGroups, answeredGroups *groupReader
	// expectedGroup and answeredGroup are the next groups of the two sides; nil means that the side
	// has ended.
	expectedGroup, answeredGroup *group
	// listedEntries is the number of entries that the service has in each list of the current owner
	// that was queried.
	listedEntries map[List]int
}

// nextExpected moves to the next expected entry that must be on the other side, too.
func (w *sideBySide) nextExpected() (err error) {
	for {
		w.expectedGroup, err = w.expectedGroups.readGroup()
		if err != nil || w.expectedGroup == nil {
			return err
		}
		if w.expectedGroup.List.Kind <= Muted {
			// The list was queried. Record that even if the service has no entry in it.
			w.listedEntries[w.expectedGroup.List] += 0
		}
		if w.expectedGroup.ID == "" { // the group only names the list
			continue
		}
		w.result.Entries++
		if !w.isBlocked(&w.expectedGroup.Entry) {
			return nil
		}
	}
}

// nextAnswered moves to the next group of the answers.
func (w *sideBySide) nextAnswered() (err error) {
	if w.answeredGroup != nil && w.answeredGroup.List.Kind <= Muted {
		w.listedEntries[w.answeredGroup.List]++
	}
	w.answeredGroup, err = w.answeredGroups.readGroup()
	return err
}

// compareAll walks through both sides to the end.
func (w *sideBySide) compareAll() error {
	if err := errors.Join(w.nextExpected(), w.nextAnswered()); err != nil {
		return err
	}
	for w.expectedGroup != nil || w.answeredGroup != nil {
		var err error
		list := w.nextList()
		switch {
		case list.Kind == Served:
			err = w.compareServed(list)
		case list.Kind.isCount():
			err = w.compareCount(list)
		case list.Kind == followCounts:
			err = w.compareUserCounts(list)
		case list.Kind == boardFollowCounts:
			err = w.compareBoardCounts(list)
		default:
			err = w.compareEntry()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextList returns the list of the group that comes next, on either side.
func (w *sideBySide) nextList() List {
	switch {
	case w.answeredGroup == nil:
		return w.expectedGroup.List
	case w.expectedGroup == nil:
		return w.answeredGroup.List
	case bytes.Compare(w.expectedGroup.sortKey, w.answeredGroup.sortKey) <= 0:
		return w.expectedGroup.List
	}
	return w.answeredGroup.List
}

// compareEntry compares the entry that comes next, and moves on.
func (w *sideBySide) compareEntry() error {
	// A negative order means that only the source has the entry, and a positive one that only the
	// service has it.
	var order int
	switch {
	case w.answeredGroup == nil:
		order = -1
	case w.expectedGroup == nil:
		order = 1
	default:
		order = bytes.Compare(w.expectedGroup.sortKey, w.answeredGroup.sortKey)
	}
	switch {
	case order < 0:
		w.Differ(&w.result.Missing, "%s: %s is missing: %s has it, since %s",
			w.expectedGroup.List, w.expectedGroup.name(), w.Origin, formatTime(w.expectedGroup.since()))
		return w.nextExpected()
	case order > 0:
		w.Differ(&w.result.Extra, "%s: %s is extra: %s does not have it, skein has, since %s",
			w.answeredGroup.List, w.answeredGroup.name(), w.Origin, formatTime(w.answeredGroup.since()))
		return w.nextAnswered()
	}

	want, got := w.expectedGroup.since(), w.answeredGroup.since()
	if w.timesDiffer(want, got) {
		w.Differ(&w.result.OtherTimes, "%s: %s has another time: %s has %s, skein has %s",
			w.expectedGroup.List, w.expectedGroup.name(), w.Origin, formatTime(want), formatTime(got))
	}
	w.compareText()
	return errors.Join(w.nextExpected(), w.nextAnswered())
}

// compareText compares the title of a board or the content of a pin. Other entries have no text.
func (w *sideBySide) compareText() {
	var want, got string
	switch w.expectedGroup.List.Kind {
	case Boards:
		if w.expectedGroup.text() == "" && !w.Exclusive {
			return // the source only mentions the board, and the service may know its title from elsewhere
		}
		want = strconv.Quote(titleOf(w.expectedGroup.text()))
		got = strconv.Quote(titleOf(w.answeredGroup.text()))
	case Pins, BoardPins:
		want = pinContentOf(w.expectedGroup.text()).String()
		got = pinContentOf(w.answeredGroup.text()).String()
	}
	if want != got {
		w.Differ(&w.result.OtherTexts, "%s: %s: %s has %s, skein has %s", w.expectedGroup.List, w.expectedGroup.name(), w.Origin, want, got)
	}
}

// maxServed is how many served items per user the service keeps.
const maxServed = 100

// compareServed compares the items that were served to a user. The source may have more of them
// than the service keeps.
func (w *sideBySide) compareServed(list List) error {
	// The value is set once the item is found in the source.
	got := map[string]bool{}
	for w.answeredGroup != nil && w.answeredGroup.List == list {
		got[w.answeredGroup.ID] = false
		if err := w.nextAnswered(); err != nil {
			return err
		}
	}

	var missing []string
	expectedItems := 0
	for w.expectedGroup != nil && w.expectedGroup.List == list {
		if _, ok := got[w.expectedGroup.ID]; ok {
			got[w.expectedGroup.ID] = true
		} else if len(missing) < maxServed {
			missing = append(missing, w.expectedGroup.ID)
		}
		expectedItems++
		if err := w.nextExpected(); err != nil {
			return err
		}
	}

	for item, isExpected := range got {
		if !isExpected {
			w.Differ(&w.result.Extra, "%s: %s is extra: %s does not have it", list, item, w.Origin)
		}
	}
	if expectedItems > maxServed {
		// The service keeps maxServed items and has dropped the others.
		missing = missing[:max(0, maxServed-len(got))]
	}
	for _, item := range missing {
		w.Differ(&w.result.Missing, "%s: %s is missing: %s has it", list, item, w.Origin)
	}
	return nil
}

// compareCount compares the number of plays of an item or by a user, or of reactions to an item.
func (w *sideBySide) compareCount(list List) error {
	got := 0
	for w.answeredGroup != nil && w.answeredGroup.List == list {
		n, err := strconv.Atoi(w.answeredGroup.text())
		if err != nil {
			return fmt.Errorf("%w: %w", errDamagedRecord, err)
		}
		got = n
		if err := w.nextAnswered(); err != nil {
			return err
		}
	}

	want := 0
	for w.expectedGroup != nil && w.expectedGroup.List == list {
		if list.Kind == ReactionsOf {
			want++
		} else {
			want += w.expectedGroup.plays()
		}
		if err := w.nextExpected(); err != nil {
			return err
		}
	}

	if got != want {
		w.Differ(&w.result.OtherCounts, "%s: %s has %d, skein has %d", list, w.Origin, want, got)
	}
	return nil
}

// compareUserCounts compares the counts of a user with the lengths of the lists that the service
// has returned for the user. compareEntry checks whether these lists are right.
func (w *sideBySide) compareUserCounts(of List) error {
	counts, err := decodeCounts(w.answeredGroup.text())
	if err != nil {
		return err
	}
	compare := func(name string, count, length int) {
		if count != length {
			w.Differ(&w.result.OtherCounts, "%s: skein lists %d %s and counts %d", of, length, name, count)
		}
	}

	// The order of the counts is that of queryUserCounts.
	kinds := []ListKind{Following, Followers, ImplicitFollowing, ImplicitFollowers, FollowedBoards, Boards, Blocked, Muted}
	following := counts[8]
	followers := counts[9]
	excluded := counts[10]

	// Compare the lists that were queried.
	hasFollows := false
	for i, kind := range kinds {
		length, wasQueried := w.listedEntries[List{kind, of.Owner, ""}]
		if !wasQueried {
			continue
		}
		compare(kind.String(), counts[i], length)
		if kind != Blocked && kind != Muted {
			hasFollows = true
		}
	}
	compare("following in all", following, counts[0]+counts[2])
	compare("followers in all", followers, counts[1]+counts[3])

	// Lists that were not queried are not in the source.
	for i, kind := range kinds {
		if _, queried := w.listedEntries[List{kind, of.Owner, ""}]; w.Exclusive && hasFollows && !queried {
			compare(kind.String(), counts[i], 0)
		}
		delete(w.listedEntries, List{kind, of.Owner, ""})
	}
	if w.Exclusive && hasFollows {
		compare("excluded boards", excluded, 0)
	}
	return w.nextAnswered()
}

// compareBoardCounts compares the counts of a board with the length of the list of its followers
// that the service has returned.
func (w *sideBySide) compareBoardCounts(of List) error {
	counts, err := decodeCounts(w.answeredGroup.text())
	if err != nil {
		return err
	}
	list := List{BoardFollowers, of.Owner, of.Board}
	// The counts are explicit followers, all followers and excluders. The source may know only of
	// the first.
	want := []int{w.listedEntries[list], w.listedEntries[list], 0}
	if !w.Exclusive {
		want = want[:1]
		counts = counts[:1]
	}
	if !slices.Equal(want, counts) {
		w.Differ(&w.result.OtherCounts, "%s: skein lists %d followers and counts %v", of, want[0], counts)
	}
	delete(w.listedEntries, list)
	return w.nextAnswered()
}
