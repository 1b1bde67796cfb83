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

// journal is a log that is folded as it is written.
type journal struct {
	t        fataler
	settings seen.Settings
	store    *store.Store
	// envs are all of the log.
	envs   []*events.Envelope
	now    events.Micros
	seq    uint64
	offset uint64
}

// journalOf opens a store of an empty log, on a file system in memory unless options name another.
func journalOf(t fataler, s seen.Settings, opts store.Options) *journal {
	t.Helper()
	if opts.FS == nil && opts.Dir == "" {
		opts.FS, opts.Dir = vfs.NewMem(), "data"
	}
	opts.Projection = seen.New(s)
	store, err := store.Open(opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return &journal{t: t, settings: s, store: store}
}

func (j *journal) close() {
	j.t.Helper()
	if err := j.store.Close(); err != nil {
		j.t.Fatalf("close: %v", err)
	}
}

// at sets the log time of what comes next.
func (j *journal) at(now events.Micros) *journal {
	j.now = max(j.now, now)
	return j
}

// add appends events, as large as envelopes may be, and folds them in one batch.
func (j *journal) add(evs ...events.Event) {
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

func (j *journal) append(evs []events.Event) {
	j.seq++
	env := &events.Envelope{Events: evs}
	for i := range evs {
		ev := &evs[i]
		j.now++
		ev.Seq, ev.Slot = j.seq, uint16(i)
		if ev.Backfill {
			j.offset++
			ev.Source, ev.Offset = "old", j.offset
		} else {
			ev.Time = j.now
		}
		env.Kinds |= events.Kinds(ev.Kind)
	}
	env.Cursor = events.Cursor{Seq: j.seq, LastTime: j.now}
	j.envs = append(j.envs, env)
}

// plays are live plays of a user.
func plays(user string, items ...string) []events.Event {
	evs := make([]events.Event, len(items))
	for i, item := range items {
		evs[i] = events.Event{Kind: events.Played, User: user, Item: item}
	}
	return evs
}

// backfills are plays that happened at a time, one microsecond after the other.
func backfills(at events.Micros, user string, items ...string) []events.Event {
	evs := plays(user, items...)
	for i := range evs {
		evs[i].Backfill, evs[i].Time = true, at+events.Micros(i)
	}
	return evs
}

// tick folds an event at a time, of a user of whom nothing is stored: the maintenance is done that
// is due by then.
func (j *journal) tick(at events.Micros) {
	j.t.Helper()
	j.at(at).add(events.Event{Kind: events.SeenCleared, User: "clock"})
}

// numbers are items.
func numbers(from, n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = strconv.Itoa(from + i)
	}
	return items
}

// ask asks which of some items a user has not seen, served ones left aside.
func (j *journal) ask(user string, window int, items ...string) []uint32 {
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

// rows calls do for all rows of the projection.
func (j *journal) rows(do func(key, value []byte)) {
	j.t.Helper()
	v, err := j.store.View()
	if err != nil {
		j.t.Fatalf("view: %v", err)
	}
	it := v.Iter(nil, nil)
	for it.Next() {
		if !projections.IsRuntimeKey(it.Key()) {
			do(it.Key(), it.Value())
		}
	}
	if err := errors.Join(it.Close(), v.Close()); err != nil {
		j.t.Fatalf("rows: %v", err)
	}
}

// count counts the rows of a month, from 1970.
func (j *journal) count(month int, tag projections.Tag) (n int) {
	j.t.Helper()
	prefix := []byte{byte(month >> 8), byte(month), byte(tag)}
	j.rows(func(key, _ []byte) {
		if bytes.HasPrefix(key, prefix) {
			n++
		}
	})
	return n
}

// plans counts the partitions that have a plan.
func (j *journal) plans() (n int) {
	j.t.Helper()
	j.rows(func(key, _ []byte) {
		if projections.Tag(key[2]) == planRow {
			n++
		}
	})
	return n
}

// rebuilt checks that a straight fold of the log has the same rows.
func (j *journal) rebuilt(t testing.TB) {
	t.Helper()
	got := conformance.RowsOf(t, j.store)
	got.MustEqual(t, conformance.Straight(t, seen.New(j.settings), j.envs), "a straight fold")
}
