package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skein-feed/skein/events"
)

// A hole is a part of the stream that was deleted, or is in a damaged file: the server says of both that there is no such message.
// Where the archive has what is missing, the stream is treated as if it had been trimmed up to the end of the hole: a reader that
// needs earlier envelopes reads the archive. Only the horizon before the end of the archive, which trimming spares, may have a hole
// too. Then the decoder learns from the archive what it would have learned there ([Log.decoderFromArchive]).

// errCoveredHole means that the stream has a hole that the archive covers. It never leaves the package: the hole is noted, and the caller
// looks again.
var errCoveredHole = errors.New("eventlog: the stream lacks messages that are in the archive")

// noteCoveredHole notes that the stream lacks a sequence, and reports whether the archive is to be read instead.
func (l *Log) noteCoveredHole(seq uint64) (bool, error) {
	if l.past == nil {
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

// noteCoveredHoles notes that the stream lacks what is from one sequence up to another, and reports whether the archive is to be read
// instead. The archive is reloaded first, because another process may have written more of it.
func (l *Log) noteCoveredHoles(ctx context.Context, from, to uint64) (bool, error) {
	if l.past == nil {
		return false, nil
	}
	end, err := l.reloadedEnd(ctx, from)
	if err != nil || end < from {
		return false, err
	}
	return l.noteCoveredHole(min(to, end))
}

// reloader is implemented by an archive that other processes also write. Reload reads its manifest again.
type reloader interface {
	Reload(ctx context.Context) error
}

// decoderFromArchive returns the decoder of a reader that stands at the end of the archive. It knows what it would know had it read the
// horizon before in the stream: the warm-up starts follow from the archived envelopes, and the event ids are kept
// beside them. So the cursors that it gives are those that any other reader gives.
func (l *Log) decoderFromArchive(ctx context.Context, end events.Cursor) (*events.Decoder, error) {
	past, err := l.past.Read(ctx, events.Cursor{Log: end.Log, Epoch: end.Epoch, Seq: end.WarmSeq - 1}, events.AllKinds)
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the archive after sequence %d: %w", end.WarmSeq-1, err)
	}
	defer past.Close()
	d := events.NewLearner(end)
	for d.Seq() < end.Seq {
		envs, err := past.Next(ctx, readBytes)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("eventlog: read the archive after sequence %d: %w", d.Seq(), err)
		}
		for _, env := range envs {
			d.LearnEnvelope(env)
		}
	}
	// The archive keeps event ids for the start of an epoch. To ask for an epoch that does not exist yet returns those at the
	// archive's end.
	repeats, err := l.past.Repeats(ctx, l.meta().epoch+1)
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the event ids seen before the end of the archive: %w", err)
	}
	switch now, err := l.archiveEnd(); {
	case err != nil:
		return nil, err
	case now != end:
		return nil, fmt.Errorf("%w: the archive went on from sequence %d to %d", errInterrupted, end.Seq, now.Seq)
	}
	return d, d.FinishLearning(end, repeats)
}
