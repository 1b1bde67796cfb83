package archive

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// Errors of an [Archive].
var (
	// ErrDamaged means that an object of the archive is missing or does not hold what was written.
	// The text names the object.
	ErrDamaged = events.ErrArchiveDamaged
	// ErrVersion means that a newer version of skein wrote the archive.
	ErrVersion = errors.New("archive: written by a newer version")
	// ErrChanged means that another process changed the archive meanwhile. Reload the archive and
	// begin again at its new end.
	ErrChanged = errors.New("archive: changed by another process")
	// ErrOrder means that an envelope does not follow the end of the archive.
	ErrOrder = errors.New("archive: out of order")
	// ErrFull means that a [Writer] has reached the largest size of a segment and must be sealed.
	ErrFull = errors.New("archive: the segment is full")
)

// Archive is the archived part of a log, in a bucket. It implements [events.Archive] and is safe
// for concurrent use.
//
// Several processes may share a bucket. Only the one that holds the lease may call the methods that
// change the archive: Seal, BeginEpoch, ReplaceRepeats, Merge, RemoveReplaced, Scrub and Sweep. The
// other processes see the changes after Reload.
type Archive struct {
	bucket bucket.Bucket
	log    events.LogID

	// rewriteMu is held by Merge, Scrub and Sweep. Without it a merge could write again what a
	// scrub has just removed, and a sweep could delete the files of a merge before the manifest
	// names them. It is locked before changeMu, which alone would not do: a merge reads and writes
	// for a long time, and sealing must be able to continue meanwhile.
	rewriteMu sync.Mutex
	// changeMu is held from reading the current manifest until it is replaced, so that two changes
	// of this process do not start from the same manifest.
	changeMu sync.Mutex
	// replaced are the files that merges have replaced, oldest first. changeMu guards it.
	replaced []replacedFile

	// mu guards manifest, for readers: changeMu is held while the bucket is written.
	mu       sync.Mutex
	manifest *manifest // never changed, only replaced
}

var _ events.Archive = (*Archive)(nil)

// Open opens the archive of a log by reading its manifest. If there is no manifest, the archive is
// empty. Open fails with [events.ErrOtherLog] if the bucket holds the archive of another log, and
// with [ErrDamaged] or [ErrVersion] if the manifest cannot be read.
func Open(ctx context.Context, b bucket.Bucket, id events.LogID) (*Archive, error) {
	a := &Archive{bucket: b, log: id}
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// LogOf returns the id of the log whose archive is in a bucket. ok is false if the bucket holds no
// archive. The id is needed to open the archive of a log whose stream was lost.
func LogOf(ctx context.Context, b bucket.Bucket) (id events.LogID, ok bool, err error) {
	m, err := readManifest(ctx, b)
	if err != nil || m == nil {
		return events.LogID{}, false, err
	}
	return m.log, true, nil
}

// Reload reads the manifest again. Open readers continue with the segments that they began with, or
// with those that replaced them.
func (a *Archive) Reload(ctx context.Context) error {
	m, err := readManifest(ctx, a.bucket)
	if err != nil {
		return err
	}
	if m == nil {
		m = &manifest{log: a.log, end: events.Cursor{Log: a.log}} // nothing is archived yet
	}
	if m.log != a.log {
		return fmt.Errorf("%w: %s holds the archive of log %x, this is %x: name another directory or bucket for it",
			events.ErrOtherLog, a.bucket, m.log, a.log)
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	// Another goroutine may have written a newer manifest while this one was read. Revisions only
	// rise.
	if a.manifest == nil || m.revision >= a.manifest.revision {
		a.manifest = m
	}
	return nil
}

// currentManifest returns the manifest that this process read or wrote last. It must not be
// changed.
func (a *Archive) currentManifest() *manifest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.manifest
}

// replaceManifest writes the next manifest and makes it the current one. The caller must hold
// changeMu.
//
// It fails with [ErrChanged] if the bucket no longer holds the previous one. A [bucket.Bucket] has
// no compare-and-swap: the lease is what keeps two writers apart, and this check catches a writer
// that lost it.
func (a *Archive) replaceManifest(ctx context.Context, previous, next *manifest) error {
	now, err := readManifest(ctx, a.bucket)
	if err != nil {
		return err
	}
	if now == nil {
		now = &manifest{}
	}
	if now.checksum != previous.checksum {
		return fmt.Errorf("%w: %s", ErrChanged, a.bucket)
	}

	next.revision = previous.revision + 1
	if err := writeManifest(ctx, a.bucket, next); err != nil {
		return err
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	a.manifest = next
	return nil
}

// End returns the cursor after the last archived envelope, as the reader of the stream gave it. Its
// Seq is 0 if nothing is archived.
func (a *Archive) End() events.Cursor { return a.currentManifest().end }

// Epoch returns the epoch of the end of the archive. It is 0 if nothing is archived.
func (a *Archive) Epoch() uint32 { return a.currentManifest().epoch }

// Predecessors returns the previous epochs of the log, the oldest first.
func (a *Archive) Predecessors() []eventlog.Predecessor {
	return append([]eventlog.Predecessor(nil), a.currentManifest().predecessors...)
}

// Info describes the content of an archive.
type Info struct {
	// Location is the bucket, without secrets.
	Location string
	Epoch    uint32
	// End is the cursor after the last archived envelope.
	End events.Cursor
	// Envelopes is the number of archived envelopes.
	Envelopes uint64
	// Classes describes the files of each class.
	Classes [numClasses]ClassInfo
}

// ClassInfo describes the files of one class.
type ClassInfo struct {
	Class    Class
	Segments int
	// Bytes is the total size of the files.
	Bytes  uint64
	Events uint64
}

// Info returns a description of the archive. It uses only the manifest, so it costs no requests to
// the bucket.
func (a *Archive) Info() Info {
	m := a.currentManifest()
	info := Info{Location: a.bucket.String(), Epoch: m.epoch, End: m.end, Envelopes: m.envelopes}
	for c := range info.Classes {
		info.Classes[c].Class = Class(c)
	}

	for _, s := range m.segments {
		c := &info.Classes[s.class]
		c.Segments++
		c.Bytes += uint64(s.bytes)
		c.Events += s.events
	}
	return info
}

// Growth returns the number of bytes archived over the last stretch of log time, and the length of
// that stretch: at least span, unless less is archived. It counts whole ranges, and never the first
// one, because its beginning in log time is not recorded.
func (a *Archive) Growth(span events.Micros) (bytes uint64, over events.Micros) {
	m := a.currentManifest()
	ranges := m.segmentRanges()
	for i := len(ranges) - 1; i > 0 && over < span; i-- {
		bytes += uint64(ranges[i].bytes)
		over = m.end.LastTime - m.segments[ranges[i].begin-1].lastTime
	}
	return bytes, over
}

// Sweep removes the objects that the manifest does not name: files left behind by a crash, and
// replaced segments. Only the process that may change the archive may sweep it, because a file that
// another process has written but not yet named looks the same.
func (a *Archive) Sweep(ctx context.Context) error {
	a.rewriteMu.Lock()
	defer a.rewriteMu.Unlock()
	a.changeMu.Lock()
	defer a.changeMu.Unlock()
	if err := a.Reload(ctx); err != nil {
		return err
	}

	m := a.currentManifest()
	named := map[string]bool{ManifestName: true, m.repeats.name: true}
	for _, s := range m.segments {
		named[s.name] = true
	}
	for _, r := range m.recent {
		named[r.name] = true
	}

	objects, err := a.bucket.List(ctx, objectPrefix)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if named[o.Name] {
			continue
		}
		if err := a.bucket.Delete(ctx, o.Name); err != nil {
			return err
		}
	}

	a.replaced = nil // those files are among the removed ones
	return nil
}
