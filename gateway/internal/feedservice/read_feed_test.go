package feedservice

import (
	"bytes"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/inbox"
)

func FuzzAhead(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add((&hiding{upTo: 300}).appendAhead(nil, events.Position{Seq: 7}), uint64(7))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, uint64(1)<<63)
	f.Fuzz(func(t *testing.T, cursor []byte, seq uint64) {
		at := events.Position{Seq: seq}
		upTo, rest, ok := cutAhead(cursor, at)
		if !ok {
			return
		}
		encoded := (&hiding{upTo: upTo}).appendAhead(nil, at)
		again, left, ok := cutAhead(append(encoded, rest...), at)
		if upTo < seq || !ok || again != upTo || !bytes.Equal(left, rest) {
			t.Errorf("%x at %d is %d and %x, and then %d and %x", cursor, seq, upTo, rest, again, left)
		}
	})
}

func FuzzFeedCursors(f *testing.F) {
	f.Add([]byte{})
	f.Add(appendCursors(nil, nil, inbox.PageCursor("after")))
	f.Add(appendCursors(nil, inbox.PageCursor("above"), inbox.PageCursor("after")))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		above, after, ok := splitCursors(b)
		if !ok {
			return
		}
		above2, after2, ok := splitCursors(appendCursors(nil, above, after))
		if !ok || string(above) != string(above2) || string(after) != string(after2) || (above == nil) != (above2 == nil) || after2 == nil {
			t.Errorf("%x is %x, %x and then %x, %x", b, above, after, above2, after2)
		}
	})
}
