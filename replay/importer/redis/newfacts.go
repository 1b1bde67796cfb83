package redis

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/atomicfile"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/importer"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// selectNew decides which facts are new, after everything was read. It writes them to a file, in the order of their offsets, and the
// rejects to another. From then on this run publishes exactly these facts, whatever happens to Redis.
func (r *run) selectNew() error {
	s := r.state
	sorted := &recordfile.Sorter{Dir: r.State, Files: s.Files}
	found, err := sorted.Merge()
	if err != nil {
		return err
	}
	defer func() { _ = found.Close() }() // it was only read
	var knownPaths []string
	if s.Known != "" {
		knownPaths = append(knownPaths, filepath.Join(r.State, s.Known))
	}
	known, err := recordfile.Merge(knownPaths)
	if err != nil {
		return err
	}
	defer func() { _ = known.Close() }() // it was only read
	name := fmt.Sprintf("new-%04d", s.Run)
	w, err := recordfile.Create(filepath.Join(r.State, name))
	if err != nil {
		return err
	}
	x := &selection{found: found, known: known, fresh: w}
	if err := x.run(filepath.Join(r.State, rejectsName)); err != nil {
		w.Discard()
		return err
	}
	sum, err := w.Close()
	if err != nil {
		return err
	}
	s.Phase, s.New, s.NewSize, s.Digest = phasePublishing, name, w.Count, fmt.Sprintf("%016x", sum)
	s.Found, s.Rejected, s.Reasons, s.Gone, s.Files = x.facts, x.rejected, x.reasons, x.gone, nil
	if err := r.save(); err != nil {
		return err
	}
	return s.sweep(r.State)
}

// selection compares the found facts with the known ones, in one pass: both are sorted.
type selection struct {
	found, known recordfile.Records
	fresh        *recordfile.Writer
	// at is the next known record; nil means there is none.
	at []byte
	// timed are the ids of the last fact with a time, found or known.
	timed []byte

	facts, rejected, gone uint64
	reasons               importer.Reasons
}

func (x *selection) run(rejectsPath string) error {
	if err := x.advance(); err != nil {
		return err
	}
	rejects := &rejectsFile{path: rejectsPath}
	defer rejects.drop()
	for {
		record, err := x.found.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if record[0] == rejectTag {
			x.rejected++
			rej, err := decodeReject(record)
			if err != nil {
				return err
			}
			rej.count(&x.reasons)
			if err := rejects.add(&rej); err != nil {
				return err
			}
			continue
		}
		if err := x.fact(record); err != nil {
			return err
		}
	}
	for x.at != nil {
		x.gone++
		if err := x.advance(); err != nil {
			return err
		}
	}
	return rejects.close()
}

// advance moves to the next known record.
func (x *selection) advance() error {
	record, err := x.known.Next()
	if errors.Is(err, io.EOF) {
		x.at = nil
		return nil
	}
	x.at = record
	return err
}

// fact decides whether a found fact is new.
func (x *selection) fact(record []byte) error {
	for x.at != nil {
		switch c := bytes.Compare(x.at, record); {
		case c < 0:
			x.gone++
			x.note(x.at)
			if err := x.advance(); err != nil {
				return err
			}
			continue
		case c == 0:
			x.facts++
			x.note(record)
			return x.advance()
		}
		break
	}
	if x.told(record) {
		return nil
	}
	x.facts++
	x.note(record)
	return x.fresh.Add(record)
}

// note remembers the ids of a fact with a time.
func (x *selection) note(record []byte) {
	if ids := idsOf(record); !isTimeless(record, ids) {
		x.timed = append(x.timed[:0], ids...)
	}
}

// told reports whether a fact without a time repeats one that has a time. In the order of records it comes after that one. Such a fact is
// not published: with the start of the run as its time, it would count as newer than it is.
func (x *selection) told(record []byte) bool {
	ids := idsOf(record)
	return isTimeless(record, ids) && len(record) == len(ids)+8 && bytes.Equal(ids, x.timed)
}

func isTimeless(record, ids []byte) bool {
	return bytes.HasPrefix(record[len(ids):], timelessBytes)
}

var timelessBytes = []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// rejectsFile is the file of rejects of a run. It is created for the first reject, and replaces the file of an earlier run.
type rejectsFile struct {
	path string
	file *atomicfile.File
}

// rejectsHeader is the first line of the rejects.
const rejectsHeader = "rule\tkey\telement\treason\n"

// String returns the reject as a line of the file. A field with unprintable characters is quoted.
func (r *reject) String() string {
	return fmt.Sprintf("%d\t%s\t%s\t%s", r.rule, quote(r.key), quote(r.element), strings.Join(strings.Fields(r.reason), " "))
}

func (f *rejectsFile) add(r *reject) (err error) {
	if f.file == nil {
		if f.file, err = atomicfile.Create(f.path); err != nil {
			return fmt.Errorf("cannot keep rejects: %w", err)
		}
		if _, err := io.WriteString(f.file, rejectsHeader); err != nil {
			return err
		}
	}
	_, err = io.WriteString(f.file, r.String()+"\n")
	return err
}

func (f *rejectsFile) close() error {
	if f.file == nil {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := f.file.Commit(); err != nil {
		return fmt.Errorf("cannot keep rejects: %w", err)
	}
	return nil
}

// drop discards the file, unless close has moved it into place.
func (f *rejectsFile) drop() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

// newRecords reads the new facts of a run as records of an import. Their numbers follow those of earlier runs.
type newRecords struct {
	from   *recordfile.Reader
	source string
	start  events.Micros
	// number is that of the last record, before that of the record before the first, and all the number of records.
	number, before, all uint64
	read                atomic.Uint64
}

func (r *run) openNew() (*newRecords, error) {
	s := r.state
	from, err := recordfile.Open(filepath.Join(r.State, s.New))
	if err != nil {
		return nil, err
	}
	return &newRecords{from: from, source: s.Source, start: r.start(), number: s.Offset, before: s.Offset, all: s.NewSize}, nil
}

// Next implements [importer.Records].
func (n *newRecords) Next() (importer.Record, error) {
	record, err := n.from.Next()
	if err != nil {
		return importer.Record{}, err
	}
	f, err := decodeFact(record)
	if err != nil {
		return importer.Record{}, err
	}
	n.number++
	n.read.Store(n.number - n.before)
	return importer.Record{
		Number: n.number, Line: f.String(), Clamped: f.at != timeless && f.at > n.start,
		Events: []*skeinv1.Event{f.event(n.source, n.number, n.start)},
	}, nil
}

// Progress implements [importer.Records].
func (n *newRecords) Progress() replay.PhaseProgress {
	return replay.PhaseProgress{Phase: replay.Publishing, Unit: "facts", Done: n.read.Load(), Total: n.all}
}
