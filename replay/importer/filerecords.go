package importer

import (
	"time"

	"github.com/skein-feed/skein/events"
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

func newFileRecords(o Options, f *file, reader *recordReader, source string, start time.Time) *fileRecords {
	return &fileRecords{
		kind: o.Kind, first: o.First, file: f, reader: reader, seen: map[subject]struct{}{},
		translator: &translator{
			kind: o.Kind, source: source, start: events.Micros(start.UnixMicro()), columns: reader.shape.columns,
		},
	}
}

// Next implements [Records].
func (f *fileRecords) Next() (Record, error) {
	record, err := f.reader.next()
	if err != nil {
		return Record{}, err
	}
	of, bad := f.events(&record)
	return Record{
		Number: record.number, Events: of.events, Bad: bad, Clamped: of.clamped, Early: of.early, Line: record.line,
		Repeat: bad == nil && f.first && f.kind.repeats(f.seen, &record),
	}, nil
}

// Extent implements [Records].
func (f *fileRecords) Extent() (read, size int64) { return f.file.read.Load(), f.file.size }

// repeats reports whether an earlier record had the same subject, and adds the subject to seen.
func (k Kind) repeats(seen map[subject]struct{}, r *record) bool {
	s := k.subjectOf(r)
	if _, ok := seen[s]; ok {
		return true
	}
	seen[s] = struct{}{}
	return false
}
