package eventlog

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestLocateImplementsTableOfStates checks the table of states in the package documentation. Unless
// a case says otherwise, the archive ends at sequence 50 and its warm-up starts at 40, and the
// stream begins at 30 and ends at 100.
func TestLocateImplementsTableOfStates(t *testing.T) {
	meta := &logMeta{epoch: 1, first: 1}
	stream := func(seq, warm uint64) events.Cursor {
		return events.Cursor{Epoch: 1, Seq: seq, LastTime: events.Micros(seq), WarmSeq: warm, WarmTime: 1, Checksum: 1}
	}
	archived := func(seq uint64) events.Cursor {
		return events.Cursor{Epoch: 1, Seq: seq, LastTime: events.Micros(seq)}
	}
	normal := boundary{meta: meta, hasArchive: true, end: stream(50, 40), streamStart: 30, first: 30, last: 100}
	with := func(change func(b *boundary)) boundary {
		b := normal
		change(&b)
		return b
	}

	gapAt := func(begins uint64) boundary { return with(func(b *boundary) { b.streamStart = begins }) }
	withoutArchive := with(func(b *boundary) { b.hasArchive, b.end = false, events.Cursor{Epoch: 1} })
	otherTime := archived(50)
	otherTime.LastTime++

	for name, test := range map[string]struct {
		boundary         boundary
		cursor           events.Cursor
		wantPart         part
		wantDecoderStart uint64
		wantErr          error
	}{
		"a cursor of the stream":                  {normal, stream(70, 60), inStream, 70, nil},
		"one before the end of the archive":       {normal, stream(45, 35), inStream, 45, nil},
		"a warm-up that begins before the stream": {normal, stream(35, 29), inArchive, 0, nil},
		"a cursor of the archive":                 {normal, archived(49), inArchive, 0, nil},
		"the start of the log":                    {normal, archived(0), inArchive, 0, nil},
		"the end of the archive":                  {normal, archived(50), atBoundary, 50, nil},
		"the end of another archive":              {normal, otherTime, 0, 0, events.ErrRewritten},
		"an archive that has lost its end":        {normal, archived(60), atBoundary, 50, nil},
		"a gap in the warm-up of the end":         {gapAt(45), stream(50, 40), atGap, 50, nil},
		"the stream begins behind the archive":    {gapAt(51), stream(60, 45), atGap, 50, nil},
		"a hole between archive and stream":       {gapAt(52), stream(60, 45), 0, 0, events.ErrTrimmed},
		"beyond the stream":                       {normal, stream(101, 90), 0, 0, events.ErrLogShorter},
		"trimmed, without an archive":             {withoutArchive, stream(35, 25), 0, 0, events.ErrTrimmed},
		"in a stream without an archive":          {withoutArchive, stream(35, 30), inStream, 35, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.boundary.locate(test.cursor)
			if !errors.Is(err, test.wantErr) {
				t.Fatalf("locate: got error %v, want %v", err, test.wantErr)
			}
			if err != nil {
				return
			}
			if got.part != test.wantPart || got.decoderStart.Seq != test.wantDecoderStart {
				t.Errorf("locate: got %+v, want part %d from %d", got, test.wantPart, test.wantDecoderStart)
			}
		})
	}
}
