package seen_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const day = events.Micros(24 * 3600 * 1_000_000)

// fataler is a *testing.T, a *testing.B or a *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func openMem(t fataler, s seen.Settings) *store.Store {
	t.Helper()
	store, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: seen.New(s)})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return store
}

// monthStart returns the first moment of a month, from 1.
func monthStart(year, month int) events.Micros {
	return events.Micros(time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}

// envelope makes an envelope of events that have times.
func envelope(seq uint64, evs ...events.Event) *events.Envelope {
	env := &events.Envelope{Events: evs}
	for i := range evs {
		evs[i].Seq = seq
		evs[i].Slot = uint16(i)
		env.Kinds |= events.Kinds(evs[i].Kind)
		env.Cursor = events.Cursor{Seq: seq, LastTime: max(env.Cursor.LastTime, evs[i].Time)}
	}
	return env
}
