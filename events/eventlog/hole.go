package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skein-feed/skein/events"
)

// A hole is a part of the stream that was deleted or is in a damaged file. The server does not tell
// these apart: it says that there is no such message.
//
// If the archive has the missing messages, the package treats the stream as if it were trimmed up
// to the end of the hole, and readers that need earlier envelopes read the archive. There is one
// place where the archive alone is not enough: a reader at the end of the archive warms up by the
// horizon before it, which trimming never removes from the stream. If that part has a hole,
// [Log.newDecoderFromArchive] makes the decoder from the archive.

// errCoveredHole means that the stream has a hole that the archive covers. The error never leaves
// the package: whoever returns it has recorded the hole, and the caller tries again.
var errCoveredHole = errors.New("eventlog: the stream lacks messages that are in the archive")

// recordCoveredHole records that the stream lacks a sequence if the archive has it, and reports
// whether it has. Readers then read the archive up to this sequence.
func (l *Log) recordCoveredHole(seq uint64) (bool, error) {
	if l.archive == nil {
		return false, nil
	}
	end, err := l.archiveEnd()
	if err != nil || seq > end.Seq || seq < l.meta().first {
		return false, err
	}
	for known := l.coveredHoleEnd.Load(); seq > known; known = l.coveredHoleEnd.Load() {
		if l.coveredHoleEnd.CompareAndSwap(known, seq) {
			l.logger.Warn("log: the stream lacks messages: up to here the archive is read instead", "seq", seq)
		}
	}
	return true, nil
}

// recordCoveredHoles records that the stream lacks the sequences between from and to, as far as the
// archive has them, and reports whether it has the first one. If the archive does not have it,
// recordCoveredHoles first reloads the archive, because another process may have written more of
// it.
func (l *Log) recordCoveredHoles(ctx context.Context, from, to uint64) (bool, error) {
	if l.archive == nil {
		return false, nil
	}
	end, err := l.archiveEndSeq(ctx, from)
	if err != nil || end < from {
		return false, err
	}
	return l.recordCoveredHole(min(to, end))
}

// reloader is implemented by archives that other processes write, too. Reload reads the manifest of
// the archive again.
type reloader interface {
	Reload(ctx context.Context) error
}

// newDecoderFromArchive returns a decoder for a reader at the end of the archive. The decoder is in
// the same state as if it had read the horizon before that end in the stream: the warm-up starts
// follow from the archived envelopes, and the archive keeps the event ids beside the envelopes. So
// its cursors are the same as those of any other reader.
func (l *Log) newDecoderFromArchive(ctx context.Context, end events.Cursor) (*events.Decoder, error) {
	archive, err := l.archive.Read(ctx, events.Cursor{Log: end.Log, Epoch: end.Epoch, Seq: end.WarmSeq - 1}, events.AllKinds)
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the archive after sequence %d: %w", end.WarmSeq-1, err)
	}
	defer archive.Close()

	d := events.NewWarmUpDecoder(end)
	for d.Seq() < end.Seq {
		envs, err := archive.Next(ctx, readBytes)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("eventlog: read the archive after sequence %d: %w", d.Seq(), err)
		}
		for _, env := range envs {
			d.WarmUpWith(env)
		}
	}

	// The archive keeps the event ids for the start of each epoch. For an epoch that does not exist
	// yet it returns those at its own end.
	repeats, err := l.archive.Repeats(ctx, l.meta().epoch+1)
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the event ids seen before the end of the archive: %w", err)
	}

	// The archive may have grown while it was read. The event ids would then be those at a later
	// end.
	newEnd, err := l.archiveEnd()
	if err != nil {
		return nil, err
	}
	if newEnd != end {
		return nil, fmt.Errorf("%w: the archive went on from sequence %d to %d", errInterrupted, end.Seq, newEnd.Seq)
	}
	return d, d.FinishWarmUp(end, repeats)
}
