package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// updateTimedMuteRow updates the row of a mute with an end in tagTimedMutes. Reads leave the row
// out once the mute has ended.
func (t *eventFold) updateTimedMuteRow(e *edgeEnd) {
	before, after := &e.before.mute, &e.after.mute
	if *before == *after {
		return
	}

	if before.hasTimedEnd() {
		t.key = appendListKey(t.key[:0], tagTimedMutes, e.follower, before.until(), e.followee)
		t.batch.Delete(t.key)
	}
	if after.hasTimedEnd() {
		t.key = appendListKey(t.key[:0], tagTimedMutes, e.follower, after.until(), e.followee)
		t.value = appendNewestFirst(t.value[:0], after.since())
		t.batch.Set(t.key, t.value)
	}
}

// FirstMuteEnd returns the earliest time at which one of the mutes of a user that still hold ends
// by itself, or 0 if none does. It reads a row for each of them.
func (q *Queries) FirstMuteEnd(user string) (first events.Micros, err error) {
	err = q.eachTimedMute(user, func(rest, _ []byte) error {
		first, _, err = cutSince(rest) // the rows come in falling order
		return err
	})
	return first, err
}

// eachTimedMute calls do with each mute of a user that ends by itself and still holds, the latest
// end first. do gets the part of the key that follows the user, and the value.
func (q *Queries) eachTimedMute(user string, do func(rest, value []byte) error) (err error) {
	prefix := projections.AppendKey(nil, tagTimedMutes, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for it.Next() {
		rest := it.Key()[len(prefix):]
		until, _, err := cutSince(rest)
		if err != nil {
			return err
		}
		if until <= q.now {
			return nil
		}
		if err := do(rest, it.Value()); err != nil {
			return err
		}
	}
	return nil
}

// timedMutes returns the mutes of a user that end by themselves and still hold, as rows of the list
// Muted: the keys that they would have in tagMuted, and the ends as values.
func (q *Queries) timedMutes(user string) projections.Iterator {
	listPrefix := projections.AppendKey(nil, tagMuted, user)
	s := &sortedRows{valueSize: timeSize}
	s.err = q.eachTimedMute(user, func(rest, since []byte) error {
		if len(since) != timeSize {
			return rowError("timed mute", since)
		}
		until, muted := rest[:timeSize], rest[timeSize:]
		s.rows = append(s.rows, slices.Concat(listPrefix, since, muted, until))
		return nil
	})
	slices.SortFunc(s.rows, bytes.Compare)
	return s
}
