package archive

import (
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
)

var errStub = errors.ErrUnsupported

// MaxSegmentBytes is how many compressed bytes a [Writer] holds before it must be sealed.
const MaxSegmentBytes = 64 << 20

// Writer collects what follows the end of the archive, compressed in memory, until it is sealed. It is not safe for
// concurrent use. One that is not sealed may be dropped.
type Writer struct{}

// Writer returns a writer that begins at the end of the archive.
func (a *Archive) Writer() *Writer { return nil }

// Add takes the next envelopes, as the reader of the stream gave them: sequences above the end, cursors of this log and
// epoch. [ErrOrder], [events.ErrOtherLog], [events.ErrOtherEpoch]: they are not; [ErrFull]: seal first (none of the
// envelopes after the error was taken, [Writer.End] tells how far it got).
func (w *Writer) Add(envs ...*events.Envelope) error { return errStub }

// End returns the cursor after the last envelope added.
func (w *Writer) End() events.Cursor { return events.Cursor{} }

// Len returns the number of envelopes added.
func (w *Writer) Len() int { return 0 }

// Bytes returns about how many bytes the segments will have: exact for blocks that are full, estimated for the rest.
func (w *Writer) Bytes() int { return 0 }

// Sealed is what [Writer.Seal] archived.
type Sealed struct {
	// First and Last are the range of sequences.
	First, Last uint64
	// End is the cursor after the last envelope: the new end of the archive.
	End events.Cursor
	// Envelopes is how many there are.
	Envelopes uint64
	// Classes tell of the files; Segments is 0 for a class that had nothing.
	Classes [numClasses]ClassInfo
}

// Seal writes the segments, reads them back, decodes and compares them with what was added, and replaces the manifest: from
// then on they are archived, and durable. After an error the archive is what it was, unless the manifest was being replaced:
// reload to know. The writer is of no use afterwards. [ErrChanged]: the archive does not end where the writer began.
func (w *Writer) Seal(ctx context.Context) (Sealed, error) { return Sealed{}, errStub }

// Read implements [events.Past].
func (a *Archive) Read(ctx context.Context, from events.Cursor, kinds events.KindSet) (events.PastReader, error) {
	return nil, errStub
}

// Repeats implements [events.Past]: what [Archive.BeginEpoch] kept for the present epoch.
func (a *Archive) Repeats(ctx context.Context) ([]events.Repeat, error) { return nil, errStub }

// BeginEpoch records that the log goes on in a new epoch after the head, which must be where the archive ends: sequence and
// last time given. The present epoch becomes a predecessor up to there. The end of the archive is then the head, in the new
// epoch. The repeats are what readers of the new epoch cannot read again. Nothing happens if the archive is in that epoch
// already; [events.ErrOtherEpoch]: it is in a later one.
func (a *Archive) BeginEpoch(ctx context.Context, epoch uint32, head events.Cursor, repeats []events.Repeat) error {
	return errStub
}

// Scrubbed tells what [Archive.Scrub] did.
type Scrubbed struct {
	Dropped, Changed, Rejects uint64
	// Segments is how many were written anew.
	Segments int
}

// Scrub rewrites the segments that hold something to be scrubbed, replaces the manifest once and removes the old segments.
// Match is called for every event: it returns it as it is, another one in its place with the same sequence, slot and kind,
// or keep false to drop it. Rejects tells of every reject whether to drop it. Dropped events keep an empty slot: all times
// and positions stay what they were.
func (a *Archive) Scrub(ctx context.Context, match func(ev *events.Event) (changed *events.Event, keep bool),
	rejects func(r events.Reject) (drop bool), progress func(done, total uint64),
) (Scrubbed, error) {
	return Scrubbed{}, errStub
}

// Check reads all that the manifest names and verifies it: checksums, that every block decodes, and that sequences and times
// rise from segment to segment up to the end. [ErrDamaged] names the first object that is not what was written. Progress,
// if not nil, is called with bytes.
func (a *Archive) Check(ctx context.Context, progress func(done, total uint64)) error { return errStub }
