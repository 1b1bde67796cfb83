package feedservice

import (
	"bytes"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

// maxUvarint is the longest encoding of a number: ten bytes with the value 2^64-1.
var maxUvarint = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}

// FuzzCutLead checks that cutLead reads again what it has accepted, from what appendLead writes for
// it.
func FuzzCutLead(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add((&seenFilter{containedSeq: 300}).appendLead(nil, events.Position{Seq: 7}), uint64(7))
	f.Add(maxUvarint, uint64(1)<<63)
	f.Fuzz(func(t *testing.T, cursor []byte, positionSeq uint64) {
		position := events.Position{Seq: positionSeq}
		seq, rest, ok := cutLead(cursor, position)
		if !ok {
			return
		}
		if seq < positionSeq {
			t.Errorf("cutLead(%x) at %d: got the sequence %d, want at least that of the position", cursor, positionSeq, seq)
		}

		encoded := (&seenFilter{containedSeq: seq}).appendLead(nil, position)
		seqAgain, restAgain, ok := cutLead(append(encoded, rest...), position)
		if !ok || seqAgain != seq || !bytes.Equal(restAgain, rest) {
			t.Errorf("cutLead(%x) at %d, encoded and read again: got %d and %x (valid: %t), want %d and %x",
				cursor, positionSeq, seqAgain, restAgain, ok, seq, rest)
		}
	})
}

// FuzzFeedCursors checks that splitCursors reads again what it has accepted, from what
// appendCursors writes for it.
func FuzzFeedCursors(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendCursors(nil, nil, inbox.PageCursor("after")))
	f.Add(appendCursors(nil, inbox.PageCursor("lower end"), inbox.PageCursor("after")))
	f.Add(maxUvarint)
	f.Fuzz(func(t *testing.T, encoded []byte) {
		lowerEnd, after, ok := splitCursors(encoded)
		if !ok {
			return
		}

		lowerEndAgain, afterAgain, ok := splitCursors(appendCursors(nil, lowerEnd, after))
		if !ok || !bytes.Equal(lowerEndAgain, lowerEnd) || !bytes.Equal(afterAgain, after) {
			t.Errorf("splitCursors(%x), encoded and read again: got %x and %x (valid: %t), want %x and %x",
				encoded, lowerEndAgain, afterAgain, ok, lowerEnd, after)
		}

		// A nil lower end means that there is none, which differs from an empty one. A nil after
		// would mean the first page.
		if (lowerEndAgain == nil) != (lowerEnd == nil) {
			t.Errorf("splitCursors(%x), encoded and read again: got the lower end %#v, want %#v", encoded, lowerEndAgain, lowerEnd)
		}
		if after == nil || afterAgain == nil {
			t.Errorf("splitCursors(%x): got nil for after (%#v), or for after read again (%#v), want neither", encoded, after, afterAgain)
		}
	})
}
