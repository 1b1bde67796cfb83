package seen

import (
	"fmt"
	"strconv"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Settings are what the fold reads. They are part of the fingerprint (I4).
type Settings struct {
	// Window is how many calendar months back plays count when a question does not say, the current one included.
	// Default 4.
	Window int
	// Retention is how many months plays are kept, the current one included: the longest window. Default 6.
	Retention int
	// FalsePositives is the greatest share of unseen candidates that may be taken for seen over the default window.
	// Default 0.001.
	FalsePositives float64
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings { return Settings{Window: 4, Retention: 6, FalsePositives: 0.001} }

// Bounds of settings.
const (
	maxRetention = 120
	// leastFalsePositives is what fingerprints of 40 bits can hold for some hundred plays a month. For more it is n / 2^40.
	leastFalsePositives = 1e-9
)

// Check reports which setting is out of its bounds.
func (s Settings) Check() error {
	switch {
	case s.Retention < 1 || s.Retention > maxRetention:
		return fmt.Errorf("seen: the retention is %d, not 1 to %d months", s.Retention, maxRetention)
	case s.Window < 1 || s.Window > s.Retention:
		return fmt.Errorf("seen: the window is %d, not 1 to %d months, the retention", s.Window, s.Retention)
	case !(s.FalsePositives >= leastFalsePositives && s.FalsePositives <= 0.5):
		return fmt.Errorf("seen: the share of false positives is %v, not %v to 0.5", s.FalsePositives, leastFalsePositives)
	}
	return nil
}

// bits is the binary logarithm of how many unseen candidates pass for each that one closed month takes for seen: the
// months of the window share what is allowed.
func (s Settings) bits() int {
	n := leastBits
	for float64(s.Window) > s.FalsePositives*float64(uint64(1)<<n) {
		n++
	}
	return n
}

// Seen is the projection. It holds scratch space: one Seen folds into one store, from one goroutine.
type Seen struct {
	settings Settings
	bits     int

	b *projections.Batch
	// kept is read anew when the batch changes.
	kept maintenance
	// key and value are scratch: the batch copies what it is given.
	key, value   []byte
	fingerprints []uint64
	// calendar is asked for times of events, ticks for those of visits.
	calendar, ticks calendar
}

var (
	_ projections.Projection = (*Seen)(nil)
	_ projections.Configured = (*Seen)(nil)
	_ projections.Merging    = (*Seen)(nil)
	_ projections.Forgetful  = (*Seen)(nil)
	_ projections.Dated      = (*Seen)(nil)
	_ projections.Clocked    = (*Seen)(nil)
	_ projections.Compatible = (*Seen)(nil)
)

// New returns the projection.
func New(s Settings) *Seen { return &Seen{settings: s, bits: s.bits()} }

// Name returns "seen".
func (*Seen) Name() string { return "seen" }

// Version is the version of the fold and its rows.
func (*Seen) Version() uint32 { return 3 }

// Reads is part of [projections.Compatible]. The queries read what all versions wrote, but for the truncated fingerprints that versions 1
// and 2 made of closed months where a setting said so.
func (*Seen) Reads(was projections.Fingerprint) bool {
	return was.Version >= 1 && was.Version <= 3 && was.Settings["fingerprints"] != "true"
}

// Config returns the settings.
func (f *Seen) Config() Settings { return f.settings }

// Settings is part of the fingerprint.
func (f *Seen) Settings() map[string]string {
	s := f.settings
	return map[string]string{
		"window":          strconv.Itoa(s.Window),
		"retention":       strconv.Itoa(s.Retention),
		"false-positives": strconv.FormatFloat(s.FalsePositives, 'g', -1, 64),
	}
}

// Kinds are plays, serves, and what empties them.
func (*Seen) Kinds() []events.Kind {
	return []events.Kind{events.Played, events.Served, events.SeenCleared, events.UserDeleted}
}

// Dated has the tags of the rows of months.
func (*Seen) Dated() []projections.Tag { return datedTags }

// Merger merges rows that are written without being read: sets of fingerprints, whose union is taken, and serves, of which the
// newest are kept. Both are semilattices: neither order nor repetition matters.
func (*Seen) Merger() projections.Merger {
	return projections.Merger{
		Name: "seen.1",
		Merge: func(dst, key []byte, values [][]byte) ([]byte, error) {
			switch {
			case len(key) > 2 && projections.Tag(key[2]) == tagOpen:
				return union(dst, values)
			case len(key) > 2 && projections.Tag(key[2]) == tagServed:
				return mergeServes(dst, values)
			}
			return dst, projections.RowError("merged key", key)
		},
	}
}

// Forget drops the copy of the plans.
func (f *Seen) Forget() { f.kept = maintenance{} }

// Apply folds one event. A live play or serve is one blind write.
func (f *Seen) Apply(ev events.Event, b *projections.Batch) error {
	f.b = b
	now := ev.Time
	if ev.Backfill {
		now = b.LogTime()
	}
	if ev.Backfill {
		if closed, err := f.closed(ev.User); err != nil || closed {
			return err
		}
	}
	switch ev.Kind {
	case events.Played:
		return f.played(&ev, now)
	case events.Served:
		f.served(&ev)
		return nil
	case events.SeenCleared, events.UserDeleted:
		return f.cleared(ev.User)
	}
	return fmt.Errorf("seen: event of kind %s, which it does not read", ev.Kind)
}

// played adds a play to the month in which it happened, unless that is older than the longest window.
func (f *Seen) played(ev *events.Event, now events.Micros) error {
	current := f.calendar.of(now)
	m := current
	if ev.Backfill {
		if m = f.calendar.of(ev.Time); f.expired(m, current) {
			return nil
		}
	}
	if err := f.wrote(m, ev.User); err != nil {
		return err
	}
	var hash uint64
	hash, f.key = itemHash(f.key, ev.Item)
	f.value = appendFingerprint(f.value[:0], printOf(hash, userSalt(ev.User)))
	f.key = monthKey(f.key[:0], m, tagOpen, ev.User)
	f.b.Merge(f.key, f.value)
	return nil
}

// cleared removes all rows of a user. Later backfills about the user are void, because history comes before every live event.
func (f *Seen) cleared(user string) error {
	p, err := f.planOf(events.ShardOf(user).Partition())
	if err != nil {
		return err
	}
	for _, m := range p {
		for _, tag := range []projections.Tag{tagOpen, tagSealed} {
			f.key = monthKey(f.key[:0], m.month, tag, user)
			f.b.Delete(f.key)
		}
	}
	f.key = servedKey(f.key[:0], user)
	f.b.Delete(f.key)
	f.key = closedKey(f.key[:0], user, f.b.KeyedHash(user))
	if f.b.BackfillsClosed() {
		f.b.Delete(f.key)
		return nil
	}
	f.b.Set(f.key, nil)
	return nil
}

// closed reports whether no backfill counts for a user.
func (f *Seen) closed(user string) (bool, error) {
	f.key = closedKey(f.key[:0], user, f.b.KeyedHash(user))
	_, ok, err := f.b.Get(f.key)
	return ok, err
}
