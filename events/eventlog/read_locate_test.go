package eventlog

import (
	"errors"
	"testing"

	"github.com/skein-feed/skein/events"
)

// TestLocateImplementsTableOfStates goes through the table of states in the documentation of the package. Unless a case says otherwise the archive ends
// at sequence 50 and must be warmed up from 40, and the stream begins at 30 and ends at 100.
func TestLocateImplementsTableOfStates(t *testing.T) {
	meta := &logMeta{epoch: 1, first: 1}
	stream := func(seq, warm uint64) events.Cursor {
		return events.Cursor{Epoch: 1, Seq: seq, LastTime: events.Micros(seq), WarmSeq: warm, WarmTime: 1, Checksum: 1}
	}
	archived := func(seq uint64) events.Cursor {
		return events.Cursor{Epoch: 1, Seq: seq, LastTime: events.Micros(seq)}
	}
	usual := boundary{meta: meta, hasArchive: true, end: stream(50, 40), streamStart: 30, first: 30, last: 100}
	with := func(change func(b *boundary)) boundary {
		b := usual
		change(&b)
		return b
	}
	gapAt := func(begins uint64) boundary { return with(func(b *boundary) { b.streamStart = begins }) }
	withoutArchive := with(func(b *boundary) { b.hasArchive, b.end = false, events.Cursor{Epoch: 1} })
	otherTime := archived(50)
	otherTime.LastTime++
	for name, c := range map[string]struct {
		at   boundary
		c    events.Cursor
		want part
		from uint64 // of the decoder
		err  error
	}{
		"a cursor of the stream":                {usual, stream(70, 60), inStream, 70, nil},
		"before the end of the archive, too":    {usual, stream(45, 35), inStream, 45, nil},
		"it must be warmed up from the archive": {usual, stream(35, 29), inArchive, 0, nil},
		"a cursor of the archive":               {usual, archived(49), inArchive, 0, nil},
		"the start of the log":                  {usual, archived(0), inArchive, 0, nil},
		"the end of the archive":                {usual, archived(50), atBoundary, 50, nil},
		"the end of another archive":            {usual, otherTime, 0, 0, events.ErrRewritten},
		"an archive that has lost its end":      {usual, archived(60), atBoundary, 50, nil},
		"a gap before the end of the archive":   {gapAt(45), stream(50, 40), atGap, 50, nil},
		"the stream begins behind the archive":  {gapAt(51), stream(60, 45), atGap, 50, nil},
		"a hole between archive and stream":     {gapAt(52), stream(60, 45), 0, 0, events.ErrTrimmed},
		"beyond the stream":                     {usual, stream(101, 90), 0, 0, events.ErrLogShorter},
		"trimmed, without an archive":           {withoutArchive, stream(35, 25), 0, 0, events.ErrTrimmed},
		"in a stream without an archive":        {withoutArchive, stream(35, 30), inStream, 35, nil},
	} {
		o, err := c.at.locate(c.c)
		if !errors.Is(err, c.err) || err == nil && (o.part != c.want || o.decoderStart.Seq != c.from) {
			t.Errorf("%s: %+v, %v, want part %d from %d, %v", name, o, err, c.want, c.from, c.err)
		}
	}
}
