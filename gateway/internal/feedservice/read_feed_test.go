package feedservice

import (
	"bytes"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// Whatever cutLead accepts, it reads again from what appendLead writes for it.
func FuzzAhead(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add((&seenFilter{containedSeq: 300}).appendLead(nil, events.Position{Seq: 7}), uint64(7))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint64(1)<<63)
	f.Fuzz(func(t *testing.T, cursor []byte, position uint64) {
		at := events.Position{Seq: position}
		seq, rest, ok := cutLead(cursor, at)
		if !ok {
			return
		}
		if seq < position {
			t.Errorf("%x at %d demands the sequence %d, expected at least %d", cursor, position, seq, position)
		}
		encoded := (&seenFilter{containedSeq: seq}).appendLead(nil, at)
		seqAgain, restAgain, ok := cutLead(append(encoded, rest...), at)
		if !ok || seqAgain != seq || !bytes.Equal(restAgain, rest) {
			t.Errorf("%x at %d: encoded again, it is %d and %x (valid: %t), expected %d and %x", cursor, position, seqAgain, restAgain, ok, seq, rest)
		}
	})
}

// Whatever splitCursors accepts, it reads again from what appendCursors writes for it.
func FuzzFeedCursors(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendCursors(nil, nil, inbox.PageCursor("after")))
	f.Add(appendCursors(nil, inbox.PageCursor("lower end"), inbox.PageCursor("after")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		lowerEnd, after, ok := splitCursors(b)
		if !ok {
			return
		}
		lowerEnd2, after2, ok := splitCursors(appendCursors(nil, lowerEnd, after))
		if !ok || string(lowerEnd) != string(lowerEnd2) || string(after) != string(after2) {
			t.Errorf("%x: encoded again, it is %x and %x (valid: %t), expected %x and %x", b, lowerEnd2, after2, ok, lowerEnd, after)
		}
		// nil means that there is no lower end; after is never nil, because that would mean the
		// first page.
		if (lowerEnd == nil) != (lowerEnd2 == nil) || after2 == nil {
			t.Errorf("%x: encoded again, the lower end is %#v (expected %#v) and after is %#v (expected not nil)", b, lowerEnd2, lowerEnd, after2)
		}
	})
}
