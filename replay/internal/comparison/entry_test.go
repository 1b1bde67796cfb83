package comparison

import (
	"bytes"
	"slices"
	"testing"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func someEntries() []Entry {
	return []Entry{
		{List: List{Following, "ann", ""}},
		{List: List{Following, "ann", ""}, ID: "bob", At: 5},
		{List: List{Following, "ann", ""}, ID: "bob", At: Timeless},
		{List: List{Following, "ann", ""}, ID: "bobby", At: 1},
		{List: List{Boards, "ann", ""}, ID: "ann", Board: "b", At: 7, Text: TitleText("x\x00é")},
		{List: List{followCounts, "ann", ""}, Text: encodeCounts(1, 20, 0)},
		{List: List{PlaysOf, "ann", ""}, ID: "bob", At: 3, Text: "\x00\x00"},
		{List: List{BoardFollowers, "ann", "b"}, ID: "bob", At: 2},
		{List: List{boardFollowCounts, "ann", "b"}, Text: "1 1 0"},
		{List: List{Following, "anna", ""}, ID: "bob", At: 2},
	}
}

// The comparison of the two sides depends on this order: by user, with the lists of a user before
// the counts of them, and with all records about one entry together, in the order of their times.
func TestEntriesAreOrderedForTheWalk(t *testing.T) {
	var encoded [][]byte
	for _, e := range someEntries() {
		encoded = append(encoded, e.encode())
	}
	if !slices.IsSortedFunc(encoded, bytes.Compare) {
		t.Errorf("out of order: %q", encoded)
	}
}

func FuzzDecodedEntryEncodesTheSame(f *testing.F) {
	for _, e := range someEntries() {
		f.Add(e.encode())
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := decodeEntry(record)
		if err != nil {
			return
		}
		if got := e.encode(); e.ID != "" && !bytes.Equal(got, record) {
			t.Errorf("%+v encodes as %q, expected %q", e, got, record)
		}
	})
}

// If a board has two titles at the same time, the one with the larger encoding counts, as in the
// log.
func TestTitleTextOrdersAsTheEncoding(t *testing.T) {
	ordered := []string{"", "b", "ab", "ac", "a\x00bc"}
	for i, title := range ordered {
		if got := titleOf(TitleText(title)); got != title {
			t.Errorf("title %q comes back as %q", title, got)
		}
		if i > 0 && TitleText(ordered[i-1]) >= TitleText(title) {
			t.Errorf("%q is not before %q", ordered[i-1], title)
		}
	}
}

func TestPinWithoutItemShowsItsOwn(t *testing.T) {
	made := &skeinv1.PinCreated{Pin: &skeinv1.Pin{OwnerId: "ann", PinId: "p"}, BoardId: "b", Attributes: []byte("\xff")}
	want := pinContent{"ann", "b", "p", "\xff"}
	if got := pinContentOf(PinText(made)); got != want {
		t.Errorf("got %+v, expected %+v", got, want)
	}
}
