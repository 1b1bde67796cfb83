package seen_test

import (
	"bytes"
	"errors"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// testLog is a log that is folded as it is written.
type testLog struct {
	t        fataler
	settings seen.Settings
	store    *store.Store
	// envs has all envelopes of the log.
	envs   []*events.Envelope
	now    events.Micros
	seq    uint64
	offset uint64
}

// newTestLog opens a store of an empty log, on a file system in memory unless the options name
// another one.
func newTestLog(t fataler, s seen.Settings, opts store.Options) *testLog {
	t.Helper()
	if opts.FS == nil && opts.Dir == "" {
		opts.FS = vfs.NewMem()
		opts.Dir = "data"
	}
	opts.Projection = seen.New(s)
	store, err := store.Open(opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return &testLog{t: t, settings: s, store: store}
}

func (j *testLog) close() {
	j.t.Helper()
	if err := j.store.Close(); err != nil {
		j.t.Fatalf("close: %v", err)
	}
}

// advanceTo sets the log time of the next events, unless it is later already.
func (j *testLog) advanceTo(now events.Micros) *testLog {
	j.now = max(j.now, now)
	return j
}

// add appends events, in envelopes as large as they may be, and folds them in one call.
func (j *testLog) add(evs ...events.Event) {
	j.t.Helper()
	first := len(j.envs)
	for len(evs) > 0 {
		n := min(events.MaxEnvelopeEvents, len(evs))
		j.append(evs[:n])
		evs = evs[n:]
	}
	if err := j.store.Fold(j.envs[first:]); err != nil {
		j.t.Fatalf("fold up to %d: %v", j.seq, err)
	}
}

// append appends an envelope of the events, to which it gives their positions, times and offsets.
func (j *testLog) append(evs []events.Event) {
	j.seq++
	env := &events.Envelope{Events: evs}
	for i := range evs {
		ev := &evs[i]
		j.now++
		ev.Seq = j.seq
		ev.Slot = uint16(i)
		if ev.Backfill {
			j.offset++
			ev.Source = "old"
			ev.Offset = j.offset
		} else {
			ev.Time = j.now
		}
		env.Kinds |= events.Kinds(ev.Kind)
	}
	env.Cursor = events.Cursor{Seq: j.seq, LastTime: j.now}
	j.envs = append(j.envs, env)
}

// newPlays returns live plays of a user.
func newPlays(user string, items ...string) []events.Event {
	evs := make([]events.Event, len(items))
	for i, item := range items {
		evs[i] = events.Event{Kind: events.Played, User: user, Item: item}
	}
	return evs
}

// newBackfills returns plays that happened from a time on, one microsecond after the other.
func newBackfills(at events.Micros, user string, items ...string) []events.Event {
	evs := newPlays(user, items...)
	for i := range evs {
		evs[i].Backfill = true
		evs[i].Time = at + events.Micros(i)
	}
	return evs
}

// maintainAt folds an event at a time, of a user of whom nothing is stored. The store then does the
// maintenance that is due by that time.
func (j *testLog) maintainAt(at events.Micros) {
	j.t.Helper()
	j.advanceTo(at).add(events.Event{Kind: events.SeenCleared, User: "clock"})
}

// itemNumbers returns n items, whose ids are numbers from the first one on.
func itemNumbers(from, n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = strconv.Itoa(from + i)
	}
	return items
}

// findUnseen returns the indexes of the items that a user has not played in a window. It ignores
// serves.
func (j *testLog) findUnseen(user string, window int, items ...string) []uint32 {
	j.t.Helper()
	v, err := j.store.View()
	if err != nil {
		j.t.Fatalf("view: %v", err)
	}
	defer v.Close()
	unseen, _, err := seen.Query(v, j.settings).Filter(seen.Question{User: user, Window: window, IgnoreServed: true}, items, nil)
	if err != nil {
		j.t.Fatalf("filter: %v", err)
	}
	return unseen
}

// The tags of keys.go.
const (
	openRow   = projections.FirstSeenTag
	sealedRow = projections.FirstSeenTag + 1
	planRow   = projections.FirstSeenTag + 4
)

// eachRow calls visit for all rows of the projection.
func (j *testLog) eachRow(visit func(key, value []byte)) {
	j.t.Helper()
	v, err := j.store.View()
	if err != nil {
		j.t.Fatalf("view: %v", err)
	}
	it := v.Iter(nil, nil)
	for it.Next() {
		if !projections.IsRuntimeKey(it.Key()) {
			visit(it.Key(), it.Value())
		}
	}
	if err := errors.Join(it.Close(), v.Close()); err != nil {
		j.t.Fatalf("rows: %v", err)
	}
}

// countRows returns the number of rows of a month, counted from January 1970, with a tag.
func (j *testLog) countRows(month int, tag projections.Tag) (n int) {
	j.t.Helper()
	prefix := []byte{byte(month >> 8), byte(month), byte(tag)}
	j.eachRow(func(key, _ []byte) {
		if bytes.HasPrefix(key, prefix) {
			n++
		}
	})
	return n
}

// countPlans returns the number of partitions that have a plan.
func (j *testLog) countPlans() (n int) {
	j.t.Helper()
	j.eachRow(func(key, _ []byte) {
		if projections.Tag(key[2]) == planRow {
			n++
		}
	})
	return n
}

// checkRebuild checks that a straight fold of the log has the same rows.
func (j *testLog) checkRebuild(t testing.TB) {
	t.Helper()
	got := conformance.RowsOf(t, j.store)
	got.MustEqual(t, conformance.Straight(t, seen.New(j.settings), j.envs), "a straight fold")
}
