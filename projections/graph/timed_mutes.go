package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// A mute with an end holds or not depending on the log time at which it is read, and no event says
// that it has ended. So these mutes have a list of their own, tagTimedMutes, which is sorted by
// their ends. A query reads the list up to the first mute that has ended.

// updateTimedMuteRow updates the row of the follower's mute of the followee in tagTimedMutes. The
// row stays when the mute ends by itself.
func (f *eventFold) updateTimedMuteRow(change *edgeChange) {
	before, after := &change.before.mute, &change.after.mute
	if *before == *after {
		return
	}

	if before.hasTimedEnd() {
		f.key = appendListKey(f.key[:0], tagTimedMutes, change.follower, before.until(), change.followee)
		f.batch.Delete(f.key)
	}
	if after.hasTimedEnd() {
		f.key = appendListKey(f.key[:0], tagTimedMutes, change.follower, after.until(), change.followee)
		f.value = appendDescendingTime(f.value[:0], after.since())
		f.batch.Set(f.key, f.value)
	}
}

// FirstMuteEnd returns the earliest end of a user's mutes that still hold, or 0 if none of them has
// an end. It reads a row for each of them.
func (q *Queries) FirstMuteEnd(user string) (first events.Micros, err error) {
	err = q.eachTimedMute(user, func(rest, _ []byte) error {
		first, _, err = cutDescendingTime(rest) // the latest end comes first, so the last row decides
		return err
	})
	return first, err
}

// eachTimedMute calls do with each mute of a user that has an end and still holds, the latest end
// first, until do returns an error. do gets the part of the key that follows the user, and the
// value.
func (q *Queries) eachTimedMute(user string, do func(rest, value []byte) error) (err error) {
	prefix := projections.AppendKey(nil, tagTimedMutes, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for it.Next() {
		rest := it.Key()[len(prefix):]
		until, _, err := cutDescendingTime(rest)
		if err != nil {
			return err
		}
		if until <= q.now {
			return nil // this mute has ended, and all that follow ended before it
		}
		if err := do(rest, it.Value()); err != nil {
			return err
		}
	}
	return nil
}

// timedMuteRows returns an iterator over the mutes of a user that have an end and still hold,
// sorted by their beginning, as the list Muted needs them. The keys are those that the mutes would
// have in tagMuted, and the values are their ends.
func (q *Queries) timedMuteRows(user string) projections.Iterator {
	listPrefix := projections.AppendKey(nil, tagMuted, user)
	sorted := &sortedRows{valueSize: timeSize}
	sorted.err = q.eachTimedMute(user, func(rest, since []byte) error {
		if len(since) != timeSize {
			return projections.RowError("timed mute", since)
		}
		until, muted := rest[:timeSize], rest[timeSize:]
		sorted.rows = append(sorted.rows, slices.Concat(listPrefix, since, muted, until))
		return nil
	})
	slices.SortFunc(sorted.rows, bytes.Compare)
	return sorted
}
