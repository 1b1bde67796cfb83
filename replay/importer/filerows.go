package importer

import (
	"time"

	"github.com/skein-feed/skein/events"
)

// fileRows are the rows of a file, as events.
type fileRows struct {
	kind   Kind
	first  bool
	file   *file
	reader *rowReader
	*translator
	seen map[subject]struct{}
}

func newFileRows(o Options, f *file, reader *rowReader, source string, start time.Time) *fileRows {
	return &fileRows{
		kind: o.Kind, first: o.First, file: f, reader: reader, seen: map[subject]struct{}{},
		translator: &translator{
			kind: o.Kind, source: source, start: events.Micros(start.UnixMicro()), columns: reader.shape.columns,
		},
	}
}

// Next implements [Rows].
func (f *fileRows) Next() (Row, error) {
	row, err := f.reader.next()
	if err != nil {
		return Row{}, err
	}
	of, bad := f.events(&row)
	return Row{
		Number: row.number, Events: of.events, Bad: bad, Clamped: of.clamped, Early: of.early, Line: row.line,
		Repeat: bad == nil && f.first && f.kind.repeats(f.seen, &row),
	}, nil
}

// Extent implements [Rows].
func (f *fileRows) Extent() (read, size int64) { return f.file.read.Load(), f.file.size }

// repeats reports whether what a row is about was seen before.
func (k Kind) repeats(seen map[subject]struct{}, r *row) bool {
	s := k.subjectOf(r)
	if _, ok := seen[s]; ok {
		return true
	}
	seen[s] = struct{}{}
	return false
}
