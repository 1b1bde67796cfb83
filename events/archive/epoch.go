package archive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// A file of repeats consists of the magic, the version, the number of repeats, and groups of up to
// repeatsPerGroup repeats. Each group has the number of its repeats, a column of the keys as
// differences (the first one as it is), and a column of the times. The checksum of the file is in
// the manifest.
const (
	repeatsMagic    = "SKEINRPT"
	repeatsVersion  = 1
	repeatsPerGroup = 1 << 20
	maxRepeatsBytes = 1 << 30
)

// BeginEpoch records that the log continues in a new epoch after the head. The head must have the
// sequence and the last time of the end of the archive; otherwise BeginEpoch fails with [ErrOrder].
// The present epoch becomes a predecessor that ends there, and the end of the archive becomes the
// head in the new epoch.
//
// The event ids of the horizon before the head are stored for the readers of the new epoch, who
// cannot read them again from the stream. BeginEpoch does nothing if the archive is in that epoch
// already, and fails with [events.ErrOtherEpoch] if it is in a later one.
func (a *Archive) BeginEpoch(ctx context.Context, epoch uint32, head events.Cursor) error {
	a.changeMu.Lock()
	defer a.changeMu.Unlock()

	previous := a.currentManifest()
	switch {
	case head.Log != a.log:
		return fmt.Errorf("%w: the head is of log %x, the archive of %x", events.ErrOtherLog, head.Log, a.log)
	case epoch == previous.epoch:
		return nil
	case epoch < previous.epoch:
		return fmt.Errorf("%w: epoch %d cannot follow %d", events.ErrOtherEpoch, epoch, previous.epoch)
	case head.Seq != previous.end.Seq || head.LastTime != previous.end.LastTime:
		return fmt.Errorf("%w: the head is at sequence %d at %d, the archive ends at %d at %d", ErrOrder, head.Seq, head.LastTime,
			previous.end.Seq, previous.end.LastTime)
	}

	repeats, err := a.repeatsAtEnd(ctx, previous)
	if err != nil {
		return err
	}

	next := previous.clone()
	if previous.epoch != 0 {
		next.predecessors = append(next.predecessors, eventlog.Predecessor{Epoch: previous.epoch, Last: previous.end.Seq})
	}
	// The new stream has no message at the head, so the cursor has no checksum and no warm-up
	// start.
	next.epoch = epoch
	next.end = events.Cursor{Log: head.Log, Epoch: epoch, Seq: head.Seq, LastTime: head.LastTime}

	next.repeats = object{}
	next.recent = nil
	if len(repeats) > 0 {
		if next.repeats, err = a.putRepeats(ctx, newObjectName("repeats", uint64(epoch), head.Seq), repeats); err != nil {
			return err
		}
	}
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return err
	}
	a.deleteUnnamedRepeats(ctx, previous, next)
	return nil
}

// deleteUnnamedRepeats deletes the files of event ids that the new manifest no longer names. It
// ignores errors, because [Archive.Sweep] removes what is left.
func (a *Archive) deleteUnnamedRepeats(ctx context.Context, previous, next *manifest) {
	for _, r := range previous.recent {
		if !slices.Contains(next.recent, r) {
			_ = a.bucket.Delete(ctx, r.name)
		}
	}
	if previous.repeats.name != "" && previous.repeats != next.repeats {
		_ = a.bucket.Delete(ctx, previous.repeats.name)
	}
}

// Repeats implements [events.Archive]. It returns the event ids that [Archive.BeginEpoch] stored
// for the present epoch, or would store for a later one, in order of their keys.
func (a *Archive) Repeats(ctx context.Context, epoch uint32) ([]events.Repeat, error) {
	repeats, err := a.repeatsForEpoch(ctx, a.currentManifest(), epoch)
	isFinal := err == nil && epoch <= a.Epoch()
	isFailure := err != nil && !errors.Is(err, ErrDamaged)
	if isFinal || isFailure {
		return repeats, err
	}

	// Another process may have replaced the manifest: it may have begun the epoch, or sealed a
	// range and deleted a file that this manifest still names.
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	return a.repeatsForEpoch(ctx, a.currentManifest(), epoch)
}

// repeatsForEpoch returns the event ids of before the epoch of a manifest, or, for a later epoch,
// those at its end.
func (a *Archive) repeatsForEpoch(ctx context.Context, m *manifest, epoch uint32) ([]events.Repeat, error) {
	if epoch > m.epoch {
		return a.repeatsAtEnd(ctx, m)
	}
	return a.readRepeats(ctx, m.repeats)
}

// storeRecentRepeats stores the event ids of a writer's envelopes in a file that it adds to the
// next manifest. From that manifest it removes the files whose ids are all older than the horizon
// before the new end.
func (a *Archive) storeRecentRepeats(ctx context.Context, w *Writer, next *manifest) error {
	isTooOld := func(r recentRepeats) bool { return r.lastTime < w.end.LastTime-events.Horizon }
	next.recent = slices.DeleteFunc(next.recent, isTooOld)

	repeats := withinHorizon(w.repeats, w.end.LastTime)
	if len(repeats) == 0 {
		return nil
	}
	o, err := a.putRepeats(ctx, newObjectName("recent", w.from.Seq+1, w.end.Seq), repeats)
	if err != nil {
		return err
	}
	next.recent = append(next.recent, recentRepeats{object: o, lastTime: w.end.LastTime})
	return nil
}

// repeatsAtEnd returns the event ids that a reader at the end must know, each with its last time,
// in order of their keys. If one of the files cannot be read it returns only an error.
func (a *Archive) repeatsAtEnd(ctx context.Context, m *manifest) ([]events.Repeat, error) {
	r, err := a.readRemembered(ctx, m)
	if err = errors.Join(append(r.Damaged, err)...); err != nil {
		return nil, err
	}
	return r.Repeats, nil
}

// withinHorizon returns the event ids that a later event than at could repeat, each with its last
// time, in order of their keys. It overwrites the slice that it is given.
func withinHorizon(repeats []events.Repeat, at events.Micros) []events.Repeat {
	repeats = slices.DeleteFunc(repeats, func(r events.Repeat) bool { return r.Time < at-events.Horizon })
	// The newest time of a key is sorted first, and Compact keeps the first.
	slices.SortFunc(repeats, func(a, b events.Repeat) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Time, a.Time))
	})
	return slices.CompactFunc(repeats, func(a, b events.Repeat) bool { return a.Key == b.Key })
}

// putRepeats writes a file of repeats and verifies it by reading it back.
func (a *Archive) putRepeats(ctx context.Context, name string, repeats []events.Repeat) (object, error) {
	data := encodeRepeats(repeats)
	o := object{name, int64(len(data)), checksum(data)}
	if err := a.bucket.Put(ctx, o.name, bytes.NewReader(data), o.bytes); err != nil {
		return o, fmt.Errorf("archive: write %s: %w", o.name, err)
	}
	// The stream may be trimmed once the manifest names the file, so it must be readable now.
	if _, err := a.readRepeats(ctx, o); err != nil {
		return o, readBackError(o.name, err)
	}
	return o, nil
}

// readRepeats reads a file of repeats. It returns none for an object without a name, and
// [ErrDamaged] if the file is missing or differs from what the manifest says.
func (a *Archive) readRepeats(ctx context.Context, o object) ([]events.Repeat, error) {
	if o.name == "" {
		return nil, nil
	}
	if o.isLost() {
		return nil, fmt.Errorf("%w: %s was damaged: the event ids seen before the epoch are lost", ErrDamaged, o.name)
	}
	data, err := readObject(ctx, a.bucket, o.name, min(maxRepeatsBytes, o.bytes))
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, o.name, err)
	}
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != o.bytes || checksum(data) != o.checksum {
		return nil, fmt.Errorf("%w: %s: the checksum does not match", ErrDamaged, o.name)
	}
	repeats, err := decodeRepeats(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	return repeats, nil
}

// encodeRepeats returns the content of a file of repeats. Sorting the keys makes their differences
// small.
func encodeRepeats(repeats []events.Repeat) []byte {
	sorted := slices.Clone(repeats)
	slices.SortFunc(sorted, func(a, b events.Repeat) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Time, b.Time))
	})
	data := append([]byte(repeatsMagic), repeatsVersion)
	data = binary.AppendUvarint(data, uint64(len(sorted)))
	for group := range slices.Chunk(sorted, repeatsPerGroup) {
		keys := make([]uint64, len(group))
		times := make([]uint64, len(group))
		last := uint64(0)
		for i, r := range group {
			keys[i] = r.Key - last
			last = r.Key
			times[i] = uint64(r.Time)
		}
		data = binary.AppendUvarint(data, uint64(len(group)))
		data = appendColumn(appendColumn(data, keys), times)
	}
	return data
}

// decodeRepeats decodes what encodeRepeats wrote. It fails with [ErrDamaged] or [ErrVersion].
func decodeRepeats(data []byte) ([]events.Repeat, error) {
	c := &columnReader{rest: data}
	if string(c.readBytes(len(repeatsMagic))) != repeatsMagic {
		return nil, fmt.Errorf("%w: no file of repeats", ErrDamaged)
	}
	if v := c.readUvarint(); v > repeatsVersion {
		return nil, fmt.Errorf("%w: version %d, this one knows %d", ErrVersion, v, repeatsVersion)
	}

	// Keys are hashes and hardly compress, so the file cannot have more repeats than this.
	left := c.readCount(16 * len(data))
	var repeats []events.Repeat
	for left > 0 && !c.failed {
		c.decompressBudget = maxBlockBytes // for each group
		n := c.readCount(min(left, repeatsPerGroup))
		keys := readColumn[uint64](c, n, 0)
		times := readColumn[uint64](c, n, 0)
		if n == 0 || c.failed {
			c.fail()
			break
		}
		key := uint64(0)
		for i := range keys {
			key += keys[i]
			repeats = append(repeats, events.Repeat{Key: key, Time: events.Micros(times[i])})
		}
		left -= n
	}
	if c.failed || len(c.rest) > 0 {
		return nil, fmt.Errorf("%w: malformed repeats", ErrDamaged)
	}
	return repeats, nil
}
