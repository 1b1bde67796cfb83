package events

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// readGolden reads a file of testdata/golden without white space. Stores and clients have such
// bytes: if a test against a file fails, the encoding needs a new version, and the file must stay
// as it is.
func readGolden(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "golden", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), "")
}

var (
	goldenPosition = Position{Log: [4]byte{0xde, 0xad, 0xbe, 0xef}, Epoch: 300, Seq: 1<<40 + 7}
	goldenCursor   = Cursor{
		Log:   LogID{0xde, 0xad, 0xbe, 0xef, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
		Epoch: 300, Seq: 1<<40 + 7, Checksum: 0x0123456789abcdef, LastTime: 1_700_000_000_000_000,
		WarmSeq: 1<<40 + 1, WarmTime: 1_699_999_100_000_000,
	}
)

// TestPositionFormatIsPinned demands that the text of a position never changes.
func TestPositionFormatIsPinned(t *testing.T) {
	want := readGolden(t, "position.txt")
	if got := goldenPosition.String(); got != want {
		t.Errorf("String(): got %q, want %q", got, want)
	}
	if got, err := ParsePosition(want); err != nil || got != goldenPosition {
		t.Errorf("ParsePosition(%q): got %+v and error %v, want %+v", want, got, err, goldenPosition)
	}
	if got := goldenCursor.Position(); got != goldenPosition {
		t.Errorf("position of the cursor: got %+v, want %+v", got, goldenPosition)
	}
}

// TestEventPositionFormatIsPinned demands that the text of an event position never changes. It
// begins with the position of the envelope, and ParsePosition parses it as that.
func TestEventPositionFormatIsPinned(t *testing.T) {
	for _, p := range []EventPosition{{goldenPosition, 0}, {goldenPosition, 1}, {goldenPosition, 1000}} {
		if got, err := ParseEventPosition(p.String()); err != nil || got != p {
			t.Errorf("ParseEventPosition of %+v: got %+v and error %v, want the same", p, got, err)
		}
		if got, err := ParsePosition(p.String()); err != nil || got != goldenPosition {
			t.Errorf("ParsePosition of an event position: got %+v and error %v, want %+v", got, err, goldenPosition)
		}
	}

	if got, want := (EventPosition{goldenPosition, 300}).String(), readGolden(t, "event-position.txt"); got != want {
		t.Errorf("String(): got %q, want %q", got, want)
	}
	for _, p := range []EventPosition{{goldenPosition, 1001}, {Position{Epoch: 1}, 1}} {
		if got, err := ParseEventPosition(p.String()); !errors.Is(err, ErrPosition) {
			t.Errorf("ParseEventPosition of %+v: got %+v and error %v, want %v", p, got, err, ErrPosition)
		}
	}
}

// TestCursorFormatIsPinned demands that the bytes of a cursor never change.
func TestCursorFormatIsPinned(t *testing.T) {
	want, err := hex.DecodeString(readGolden(t, "cursor.hex"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := goldenCursor.MarshalBinary()
	if err != nil || !bytes.Equal(got, want) || len(got) != cursorLen {
		t.Errorf("MarshalBinary(): got %x and error %v, want %x", got, err, want)
	}

	var c Cursor
	if err := c.UnmarshalBinary(want); err != nil || c != goldenCursor {
		t.Errorf("UnmarshalBinary: got %+v and error %v, want %+v", c, err, goldenCursor)
	}

	for _, bad := range [][]byte{nil, want[:len(want)-1], append(bytes.Clone(want), 0), append([]byte{9}, want[1:]...)} {
		if err := c.UnmarshalBinary(bad); !errors.Is(err, ErrCursor) {
			t.Errorf("UnmarshalBinary(%x): got error %v, want %v", bad, err, ErrCursor)
		}
	}
}

// TestPositionSurvivesEncoding demands that every position and every cursor is the same after
// encoding and parsing.
func TestPositionSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Position{
			Log:   [4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "log")),
			Epoch: rapid.Uint32().Draw(t, "epoch"),
			Seq:   rapid.Uint64().Draw(t, "seq"),
		}
		if got, err := ParsePosition(p.String()); err != nil || got != p {
			t.Fatalf("position after encoding: got %+v and error %v, want %+v", got, err, p)
		}

		c := Cursor{
			Log: LogID{1, 2, 3}, Epoch: p.Epoch, Seq: p.Seq, Checksum: rapid.Uint64().Draw(t, "sum"),
			LastTime: Micros(rapid.Int64().Draw(t, "last")), WarmSeq: rapid.Uint64().Draw(t, "warm"),
			WarmTime: Micros(rapid.Int64().Draw(t, "warm time")),
		}
		b, _ := c.MarshalBinary()
		var again Cursor
		if err := again.UnmarshalBinary(b); err != nil || again != c {
			t.Fatalf("cursor after encoding: got %+v and error %v, want %+v", again, err, c)
		}
	})
}

func FuzzParsePosition(f *testing.F) {
	for _, p := range []Position{{}, goldenPosition, {Epoch: 1<<32 - 1, Seq: 1<<64 - 1}} {
		f.Add(p.String())
	}
	f.Add("AQAAAACAAAA\n")
	f.Add(EventPosition{Position: goldenPosition, Slots: 1000}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		eventPos, eventErr := ParseEventPosition(s)
		if !errors.Is(eventErr, err) || p != eventPos.Position {
			t.Fatalf("%q: got position %+v and error %v, and event position %+v and error %v, want the same",
				s, p, err, eventPos, eventErr)
		}
		if err != nil {
			if !errors.Is(err, ErrPosition) || p != (Position{}) {
				t.Fatalf("ParsePosition(%q): got %+v and error %v, want only %v", s, p, err, ErrPosition)
			}
			return
		}
		if eventPos.String() != s {
			t.Fatalf("text of the event position of %q: got %q, want the same", s, eventPos.String())
		}
	})
}
