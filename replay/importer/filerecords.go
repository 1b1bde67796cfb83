package importer

import (
	"errors"
	"strings"
	"time"

	"github.com/skein-feed/skein/replay"
)

// fileRecords reads the records of a file as events. It implements [Records].
type fileRecords struct {
	kind   Kind
	first  bool
	file   *file
	reader *recordReader
	*translator
	seen map[subject]struct{}
}

// newFileRecords opens a file and returns its records as events with this source and start.
func newFileRecords(o Options, s *shape, source string, start time.Time) (*fileRecords, error) {
	f, err := openFile(o.Path)
	if err != nil {
		return nil, err
	}
	reader, err := newRecordReader(f, s)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &fileRecords{
		kind:       o.Kind,
		first:      o.First,
		file:       f,
		reader:     reader,
		seen:       map[subject]struct{}{},
		translator: &translator{kind: o.Kind, source: source, start: microsOf(start), shape: s},
	}, nil
}

// Close closes the file.
func (f *fileRecords) Close() error { return f.file.Close() }

// Next implements [Records].
func (f *fileRecords) Next() (Record, error) {
	record, err := f.reader.nextRecord()
	if err != nil {
		return Record{}, err
	}
	evs, clamped, bad := f.translate(&record)
	return Record{
		Number:     record.number,
		Events:     evs,
		RejectedBy: bad,
		Clamped:    clamped,
		Line:       strings.Clone(record.line[:min(len(record.line), maxKeptLine)]),
		Repeat:     bad == nil && f.first && f.kind.isRepeat(f.seen, &record),
	}, nil
}

// Progress implements [Records].
func (f *fileRecords) Progress() replay.PhaseProgress { return f.file.progress(replay.Publishing) }

// progress returns how many bytes of the file were read.
func (f *file) progress(phase replay.Phase) replay.PhaseProgress {
	return replay.PhaseProgress{Phase: phase, Unit: "bytes", Done: uint64(f.read.Load()), Total: uint64(f.size)}
}

// isRepeat reports whether an earlier record had the same subject. It adds the subject to seen.
func (k Kind) isRepeat(seen map[subject]struct{}, r *record) bool {
	s := k.subjectOf(r)
	if _, ok := seen[s]; ok {
		return true
	}
	seen[s] = struct{}{}
	return false
}
