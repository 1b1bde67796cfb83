package events

import "context"

// Archive is the archived part of the log: all that passed the reader from the first envelope up to its end. The log reads it
// where the stream does not begin early enough. It is safe for concurrent use.
//
// Errors that wrap [ErrArchiveDamaged], [ErrRewritten] or [ErrTrimmed] end the reading for good; all others are taken to pass, such
// as those of a bucket that cannot be reached, and the reading begins again where it was.
type Archive interface {
	// End returns the cursor after the last archived envelope; Seq 0: nothing is archived. A reader of the stream continues
	// there.
	End() Cursor
	// Read returns a reader of what comes after a cursor, which must not be after the end. Kinds are those wanted: what only
	// holds others may be passed over. Of the cursor, the log, the sequence and, if it is not 0, the last time given are
	// compared with what is archived: [ErrRewritten]. It is a cursor of the present epoch, also where what is archived was
	// written in another. The context lives as long as the reading.
	Read(ctx context.Context, from Cursor, kinds KindSet) (ArchiveReader, error)
	// Repeats returns the keys of event ids that were seen within the horizon before the beginning of an epoch, with their
	// times: what its first readers cannot read again from the stream. The epoch is the present one of the log, of which the
	// archive may not have been told yet: then it begins at the end.
	Repeats(ctx context.Context, epoch uint32) ([]Repeat, error)
}

// ArchiveReader reads archived envelopes in order. It is not safe for concurrent use.
type ArchiveReader interface {
	// Next returns the next envelopes, at least one, of together about maxBytes; io.EOF after the last that was archived when
	// reading began. The events are as the stream's reader gives them, but for the event ids, which are not archived. Their
	// cursors say the sequence and the last time given, but no checksum (0) and nothing to warm up from (WarmSeq 0); that
	// of the last one is [Archive.End]. Envelopes that held nothing wanted may be left out, the last may not.
	Next(ctx context.Context, maxBytes int) ([]*Envelope, error)
	// Close ends the reading.
	Close()
}

// Repeat is what is remembered of an event with an event id (I6).
type Repeat struct {
	// Key is a hash of the event id, its acting user and kind.
	Key uint64
	// Time is when it last occurred.
	Time Micros
}
