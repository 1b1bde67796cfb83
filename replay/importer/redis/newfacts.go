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

// selectNew decides which facts are new, when everything has been read. It writes them to a file,
// in the order of their offsets, and the rejects to another file. From then on, this run publishes
// exactly these facts, whatever happens to Redis.
func (r *importRun) selectNew() error {
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
	x := &factSelection{found: found, known: known, newFacts: w}
	if err := x.selectFacts(filepath.Join(r.State, rejectsName)); err != nil {
		w.Discard()
		return err
	}

	sum, err := w.Close()
	if err != nil {
		return err
	}

	s.Phase = phasePublishing
	s.New = name
	s.NewSize = w.Count
	s.Digest = fmt.Sprintf("%016x", sum)
	s.Found = x.facts
	s.Rejected = x.rejected
	s.Reasons = x.reasons
	s.NotFound = x.notFound
	s.Files = nil
	if err := r.save(); err != nil {
		return err
	}
	return s.removeUnnamedFiles(r.State)
}

// factSelection compares the found facts with the known ones. Both are sorted, so one pass is
// enough.
type factSelection struct {
	found, known recordfile.Records
	newFacts     *recordfile.Writer
	// nextKnown is the next known record; nil means that there is none.
	nextKnown []byte
	// lastTimedIDs are the kind and ids of the last fact with a time, found or known.
	lastTimedIDs []byte

	// facts and rejected are the numbers of found facts and rejects. notFound is the number of
	// known facts that were not found.
	facts, rejected, notFound uint64
	reasons                   importer.ReasonCounts
}

// selectFacts goes through all records. It writes the rejects to the file at rejectsPath.
func (x *factSelection) selectFacts(rejectsPath string) error {
	if err := x.advanceKnown(); err != nil {
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
			rej.countIn(&x.reasons)
			if err := rejects.add(&rej); err != nil {
				return err
			}
			continue
		}
		if err := x.handleFact(record); err != nil {
			return err
		}
	}

	// The known facts that are left were not found.
	for x.nextKnown != nil {
		x.notFound++
		if err := x.advanceKnown(); err != nil {
			return err
		}
	}
	return rejects.close()
}

// advanceKnown moves to the next known record.
func (x *factSelection) advanceKnown() error {
	record, err := x.known.Next()
	if errors.Is(err, io.EOF) {
		x.nextKnown = nil
		return nil
	}
	x.nextKnown = record
	return err
}

// handleFact decides whether a found fact is new, and adds it to the new facts if it is.
func (x *factSelection) handleFact(record []byte) error {
	// Pass the known facts that come before the record: they were not found.
	for x.nextKnown != nil && bytes.Compare(x.nextKnown, record) < 0 {
		x.notFound++
		x.rememberTimed(x.nextKnown)
		if err := x.advanceKnown(); err != nil {
			return err
		}
	}
	isKnown := x.nextKnown != nil && bytes.Equal(x.nextKnown, record)
	if isKnown {
		x.facts++
		x.rememberTimed(record)
		return x.advanceKnown()
	}

	if x.repeatsTimed(record) {
		return nil
	}
	x.facts++
	x.rememberTimed(record)
	return x.newFacts.Add(record)
}

// rememberTimed stores the kind and ids of a record in lastTimedIDs if the record has a time.
func (x *factSelection) rememberTimed(record []byte) {
	if ids := idsOf(record); !isTimeless(record, ids) {
		x.lastTimedIDs = append(x.lastTimedIDs[:0], ids...)
	}
}

// repeatsTimed reports whether a record without time and text repeats a fact that has a time. That
// fact comes before it in the order of records. Such a record is not published: it would get the
// start of the run as its time, and count as newer than it is.
func (x *factSelection) repeatsTimed(record []byte) bool {
	ids := idsOf(record)
	return isTimeless(record, ids) && len(record) == len(ids)+8 && bytes.Equal(ids, x.lastTimedIDs)
}

// isTimeless reports whether a record, which begins with ids, has no time.
func isTimeless(record, ids []byte) bool {
	return bytes.HasPrefix(record[len(ids):], timelessBytes)
}

// timelessBytes is the encoding of timeless.
var timelessBytes = []byte{0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// rejectsFile is the file of rejects of a run. It is created when the first reject is added, and
// replaces the file of an earlier run.
type rejectsFile struct {
	path string
	file *atomicfile.File
}

// rejectsHeader is the first line of the rejects.
const rejectsHeader = "rule\tkey\telement\treason\n"

// String returns the reject as a line of the file, without its end. Fields with unprintable
// characters are quoted.
func (r *reject) String() string {
	return fmt.Sprintf("%d\t%s\t%s\t%s", r.rule, quote(r.key), quote(r.element), strings.Join(strings.Fields(r.reason), " "))
}

// add appends a reject.
func (f *rejectsFile) add(r *reject) (err error) {
	if f.file == nil {
		f.file, err = atomicfile.Create(f.path)
		if err != nil {
			return fmt.Errorf("cannot keep rejects: %w", err)
		}
		if _, err := io.WriteString(f.file, rejectsHeader); err != nil {
			return err
		}
	}
	_, err = io.WriteString(f.file, r.String()+"\n")
	return err
}

// close moves the file to its place. If there were no rejects, it removes the file of an earlier
// run.
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

// drop discards the file, unless close has moved it to its place.
func (f *rejectsFile) drop() {
	if f.file != nil {
		_ = f.file.Close()
	}
}

// newRecords reads the new facts of a run as records of an import. Their numbers follow those of
// earlier runs.
type newRecords struct {
	from   *recordfile.Reader
	source string
	start  events.Micros
	// number is the number of the last record that was read. offsetBefore is the last number of
	// earlier runs. total is the number of records.
	number, offsetBefore, total uint64
	read                        atomic.Uint64 // the number of records that were read
}

// openNewFacts opens the file of new facts.
func (r *importRun) openNewFacts() (*newRecords, error) {
	s := r.state
	from, err := recordfile.Open(filepath.Join(r.State, s.New))
	if err != nil {
		return nil, err
	}
	return &newRecords{from: from, source: s.Source, start: r.start(), number: s.Offset, offsetBefore: s.Offset, total: s.NewSize}, nil
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
	n.read.Store(n.number - n.offsetBefore)
	return importer.Record{
		Number:  n.number,
		Line:    f.String(),
		Clamped: f.at != timeless && f.at > n.start,
		Events:  []*skeinv1.Event{f.event(n.source, n.number, n.start)},
	}, nil
}

// Progress implements [importer.Records].
func (n *newRecords) Progress() replay.PhaseProgress {
	return replay.PhaseProgress{Phase: replay.Publishing, Unit: "facts", Done: n.read.Load(), Total: n.total}
}
