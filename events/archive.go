package events

import "context"

// Archive is the archived part of the log: all envelopes from the first one up to [Archive.End].
// The log reads the archive when the stream begins too late. An Archive is safe for concurrent use.
//
// A reader gives up after an error that wraps [ErrArchiveDamaged], [ErrRewritten] or [ErrTrimmed].
// It treats all other errors as temporary, such as those of a bucket that cannot be reached, and
// continues where it was.
type Archive interface {
	// End returns the cursor after the last archived envelope. Its Seq is 0 if nothing is archived.
	// A reader of the stream continues after it.
	End() Cursor

	// Read returns a reader of the envelopes after a cursor, which must not be after the end. The
	// reader may leave out envelopes that have none of the wanted kinds. Read compares the log, the
	// sequence and, if it is not 0, the last time of the cursor with the archive, and returns
	// [ErrRewritten] if they differ. The cursor belongs to the current epoch, even if the envelope
	// before it was written in an earlier one. The context applies until the reader is closed.
	Read(ctx context.Context, from Cursor, kinds KindSet) (ArchiveReader, error)

	// Repeats returns the keys and times of the event ids that occurred within the horizon before
	// the start of an epoch. The first readers of an epoch need them, because they cannot read
	// those events again from the stream. The epoch must be the current one of the log. If the
	// archive does not know that epoch yet, the epoch starts at the end of the archive.
	Repeats(ctx context.Context, epoch uint32) ([]Repeat, error)
}

// ArchiveReader reads archived envelopes in order. It is not safe for concurrent use.
type ArchiveReader interface {
	// Next returns at least one envelope, and further ones up to about maxBytes in all. It returns
	// io.EOF after the last envelope that was archived when the reading began. The events equal
	// those of a reader of the stream, but have no event ids, which are not archived. The cursors
	// have a sequence and a last time, but neither a checksum nor a start of the warm-up (both are
	// 0), except that the last cursor is [Archive.End]. Envelopes without wanted kinds may be left
	// out, but never the last one.
	Next(ctx context.Context, maxBytes int) ([]*Envelope, error)

	// Close releases the reader.
	Close()
}

// Repeat is a remembered event id (I6).
type Repeat struct {
	// Key is a [RepeatKey] or a [ContentKey].
	Key uint64
	// Time is the log time at which the key last occurred.
	Time Micros
}
