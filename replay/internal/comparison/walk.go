package comparison

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// compareSides compares the expected entries with the answers, in order.
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

	w := &walk{Comparer: c, listed: map[List]int{}}
	if w.expectedGroups, err = newGroupReader(expected); err != nil {
		return err
	}
	if w.answeredGroups, err = newGroupReader(answered); err != nil {
		return err
	}
	return w.run()
}

// walk is a walk through both sides. want and got are their next groups; nil means that the side has ended.
type walk struct {
	*Comparer
	expectedGroups, answeredGroups *groupReader
	want, got                      *group
	// listed is the number of entries that the service lists, for the lists of the present owner that were queried.
	listed map[List]int
}

func (w *walk) nextWant() (err error) {
	for {
		if w.want, err = w.expectedGroups.read(); err != nil || w.want == nil {
			return err
		}
		if w.want.List.Kind <= Muted {
			w.listed[w.want.List] += 0 // the list was queried, even if nothing is on it
		}
		if w.want.ID == "" { // the list alone
			continue
		}
		w.result.Entries++
		if !w.isBlocked(&w.want.Entry) {
			return nil
		}
	}
}

func (w *walk) nextGot() (err error) {
	if w.got != nil && w.got.List.Kind <= Muted {
		w.listed[w.got.List]++
	}
	w.got, err = w.answeredGroups.read()
	return err
}

func (w *walk) run() error {
	if err := errors.Join(w.nextWant(), w.nextGot()); err != nil {
		return err
	}
	for w.want != nil || w.got != nil {
		var err error
		switch list := w.nextList(); {
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

// nextList returns the list that comes next on either side.
func (w *walk) nextList() List {
	if w.got == nil || w.want != nil && bytes.Compare(w.want.sortKey, w.got.sortKey) <= 0 {
		return w.want.List
	}
	return w.got.List
}

// compareEntry compares one entry of a list.
func (w *walk) compareEntry() error {
	var order int
	switch {
	case w.got == nil:
		order = -1
	case w.want == nil:
		order = 1
	default:
		order = bytes.Compare(w.want.sortKey, w.got.sortKey)
	}
	switch {
	case order < 0:
		w.Differ(&w.result.Missing, "%s: %s is missing: %s has it, since %s", w.want.List, w.want.name(), w.Origin, stamp(w.want.since()))
		return w.nextWant()
	case order > 0:
		w.Differ(&w.result.Extra, "%s: %s is extra: %s does not have it, skein has, since %s",
			w.got.List, w.got.name(), w.Origin, stamp(w.got.since()))
		return w.nextGot()
	}

	if want, got := w.want.since(), w.got.since(); w.timesDiffer(want, got) {
		w.Differ(&w.result.OtherTimes, "%s: %s has another time: %s has %s, skein has %s",
			w.want.List, w.want.name(), w.Origin, stamp(want), stamp(got))
	}
	w.compareText()
	return errors.Join(w.nextWant(), w.nextGot())
}

// compareText compares the title of a board, or the content of a pin.
func (w *walk) compareText() {
	var want, got string
	switch w.want.List.Kind {
	case Boards:
		if w.want.text() == "" && !w.Exclusive { // the board is only mentioned
			return
		}
		want, got = strconv.Quote(titleOf(w.want.text())), strconv.Quote(titleOf(w.got.text()))
	case Pins, BoardPins:
		want, got = pinContentOf(w.want.text()).String(), pinContentOf(w.got.text()).String()
	}
	if want != got {
		w.Differ(&w.result.OtherTexts, "%s: %s: %s has %s, skein has %s", w.want.List, w.want.name(), w.Origin, want, got)
	}
}

// maxServed is the number of served items that the service keeps of a user.
const maxServed = 100

// compareServed compares the items that were served to a user. The source may have more of them than the service keeps.
func (w *walk) compareServed(list List) error {
	got := map[string]bool{}
	for w.got != nil && w.got.List == list {
		got[w.got.ID] = false
		if err := w.nextGot(); err != nil {
			return err
		}
	}
	var missing []string
	n := 0
	for w.want != nil && w.want.List == list {
		if _, ok := got[w.want.ID]; ok {
			got[w.want.ID] = true
		} else if len(missing) < maxServed {
			missing = append(missing, w.want.ID)
		}
		n++
		if err := w.nextWant(); err != nil {
			return err
		}
	}
	for item, known := range got {
		if !known {
			w.Differ(&w.result.Extra, "%s: %s is extra: %s does not have it", list, item, w.Origin)
		}
	}
	if n > maxServed {
		missing = missing[:max(0, maxServed-len(got))]
	}
	for _, item := range missing {
		w.Differ(&w.result.Missing, "%s: %s is missing: %s has it", list, item, w.Origin)
	}
	return nil
}

// compareCount compares a number of plays or likes.
func (w *walk) compareCount(list List) error {
	got := 0
	for w.got != nil && w.got.List == list {
		n, err := strconv.Atoi(w.got.text())
		if err != nil {
			return fmt.Errorf("%w: %w", errRecord, err)
		}
		got = n
		if err := w.nextGot(); err != nil {
			return err
		}
	}
	want := 0
	for w.want != nil && w.want.List == list {
		if list.Kind == LikesOf {
			want++
		} else {
			want += w.want.plays()
		}
		if err := w.nextWant(); err != nil {
			return err
		}
	}
	if got != want {
		w.Differ(&w.result.OtherCounts, "%s: %s has %d, skein has %d", list, w.Origin, want, got)
	}
	return nil
}

// compareUserCounts compares the counts of a user with the lengths of the lists that the service has for the user. Whether these lists are
// right is compared entry by entry.
func (w *walk) compareUserCounts(of List) error {
	counts, err := decodeCounts(w.got.text())
	if err != nil {
		return err
	}
	compare := func(name string, count, length int) {
		if count != length {
			w.Differ(&w.result.OtherCounts, "%s: skein lists %d %s and counts %d", of, length, name, count)
		}
	}
	// The order is that of queryUserCounts.
	kinds := []ListKind{Following, Followers, ImplicitFollowing, ImplicitFollowers, FollowedBoards, Boards, Blocked, Muted}
	following, followers, excluded := counts[8], counts[9], counts[10]

	hasFollows := false
	for i, kind := range kinds {
		length, queried := w.listed[List{kind, of.Owner, ""}]
		if hasFollows = hasFollows || queried && i < len(kinds)-2; queried {
			compare(kind.String(), counts[i], length)
		}
	}
	compare("following in all", following, counts[0]+counts[2])
	compare("followers in all", followers, counts[1]+counts[3])
	for i, kind := range kinds {
		if _, queried := w.listed[List{kind, of.Owner, ""}]; w.Exclusive && hasFollows && !queried {
			compare(kind.String(), counts[i], 0)
		}
		delete(w.listed, List{kind, of.Owner, ""})
	}
	if w.Exclusive && hasFollows {
		compare("excluded boards", excluded, 0)
	}
	return w.nextGot()
}

// compareBoardCounts compares the counts of a board with the length of the list of its followers.
func (w *walk) compareBoardCounts(of List) error {
	counts, err := decodeCounts(w.got.text())
	if err != nil {
		return err
	}
	list := List{BoardFollowers, of.Owner, of.Board}
	want := []int{w.listed[list], w.listed[list], 0}
	if !w.Exclusive {
		want, counts = want[:1], counts[:1]
	}
	if !slices.Equal(want, counts) {
		w.Differ(&w.result.OtherCounts, "%s: skein lists %d followers and counts %v", of, want[0], counts)
	}
	delete(w.listed, list)
	return w.nextGot()
}
