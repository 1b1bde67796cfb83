package seen

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// Settings are the settings of the fold. They are part of the fingerprint (I4).
type Settings struct {
	// Window is how many calendar months of plays count if a question does not say, including the
	// current month. Default 4.
	Window int
	// Retention is how many calendar months plays are kept, including the current month. It is the
	// longest window. Default 6.
	Retention int
	// FalsePositives is the greatest share of unseen candidates that a question with the default
	// window may take for seen. Default 0.001.
	FalsePositives float64
}

// DefaultSettings returns the defaults.
func DefaultSettings() Settings { return Settings{Window: 4, Retention: 6, FalsePositives: 0.001} }

// Bounds of settings.
const (
	maxRetention = 120
	// minFalsePositives is the share that fingerprints of 40 bits can keep for some hundred plays a
	// month. With n plays their share is n / 2^40.
	minFalsePositives = 1e-9
)

// Check returns an error that names a setting that is out of its bounds, if there is one.
func (s Settings) Check() error {
	switch {
	case s.Retention < 1 || s.Retention > maxRetention:
		return fmt.Errorf("seen: the retention is %d, not 1 to %d months", s.Retention, maxRetention)
	case s.Window < 1 || s.Window > s.Retention:
		return fmt.Errorf("seen: the window is %d, not 1 to %d months, the retention", s.Window, s.Retention)
	case !(s.FalsePositives >= minFalsePositives && s.FalsePositives <= 0.5):
		return fmt.Errorf("seen: the share of false positives is %v, not %v to 0.5", s.FalsePositives, minFalsePositives)
	}
	return nil
}

// positionsPerPlay returns how many bits a Bloom filter sets per play. With n bits, a month takes
// one unseen candidate in 2^n for seen. The months of the window share what FalsePositives allows.
func (s Settings) positionsPerPlay() int {
	// Take the smallest n with Window / 2^n <= FalsePositives. Only multiplications by powers of two
	// are used, which are exact, so all machines get the same n (I4).
	n := minPositions
	for float64(s.Window) > s.FalsePositives*float64(uint64(1)<<n) {
		n++
	}
	return n
}

// Seen is the projection. It has scratch memory, so a Seen folds into one store, from one
// goroutine.
type Seen struct {
	settings Settings
	// positions is [Settings.positionsPerPlay].
	positions int
	// hidden folds the items that users hide.
	hidden hiddenitems.Fold

	batch *projections.Batch
	// maintenance is read again when the batch changes.
	maintenance maintenanceCache
	// key, value and fingerprints are scratch memory. The batch copies what it is given.
	key, value   []byte
	fingerprints []uint64
	// There are two calendars, because each remembers one month: that of the events, and that of
	// the visits.
	eventCalendar, tickCalendar calendar
}

var (
	_ projections.Projection       = (*Seen)(nil)
	_ projections.SettingsProvider = (*Seen)(nil)
	_ projections.MergerProvider   = (*Seen)(nil)
	_ projections.CacheDropper     = (*Seen)(nil)
	_ projections.MonthKeyed       = (*Seen)(nil)
	_ projections.ClockTicker      = (*Seen)(nil)
	_ projections.VersionReader    = (*Seen)(nil)
)

// New returns the projection.
func New(s Settings) *Seen {
	return &Seen{settings: s, positions: s.positionsPerPlay(), hidden: hiddenitems.NewFold(hiddenItems)}
}

// Name returns "seen".
func (*Seen) Name() string { return "seen" }

// Version is the version of the fold and its rows. Since 4 it has hidden items.
func (*Seen) Version() uint32 { return 4 }

// CanRead reports whether the queries can read a store that was folded with a fingerprint. They can
// read those of all versions, except where the setting "fingerprints" of versions 1 and 2 made
// truncated fingerprints of closed months. It is part of [projections.VersionReader].
func (*Seen) CanRead(was projections.Fingerprint) bool {
	return was.Version >= 1 && was.Version <= 4 && was.Settings["fingerprints"] != "true"
}

// Settings returns the settings that are part of the fingerprint, which are all.
func (f *Seen) Settings() map[string]string {
	s := f.settings
	return map[string]string{
		"window":          strconv.Itoa(s.Window),
		"retention":       strconv.Itoa(s.Retention),
		"false-positives": strconv.FormatFloat(s.FalsePositives, 'g', -1, 64),
	}
}

// ParseSettings returns the settings of a fingerprint, which [Seen.Settings] has made. It fails
// with [projections.ErrCorrupt].
func ParseSettings(settings map[string]string) (s Settings, err error) {
	var errs [3]error
	s.Window, errs[0] = strconv.Atoi(settings["window"])
	s.Retention, errs[1] = strconv.Atoi(settings["retention"])
	s.FalsePositives, errs[2] = strconv.ParseFloat(settings["false-positives"], 64)
	if err := errors.Join(errs[:]...); err != nil {
		return s, fmt.Errorf("%w: settings of the seen store: %w", projections.ErrCorrupt, err)
	}
	return s, nil
}

// Kinds returns the kinds of events that add plays and serves, hide items, or remove what is known
// about a user.
func (*Seen) Kinds() []events.Kind {
	return []events.Kind{
		events.Played, events.Served, events.SeenCleared, events.UserDeleted, events.ItemHidden, events.ItemShown,
	}
}

// MonthTags returns the tags of rows whose keys begin with a month. It is part of
// [projections.MonthKeyed].
func (*Seen) MonthTags() []projections.Tag { return datedTags }

// Merger returns how to merge rows that are written without being read. Of sets of fingerprints it
// takes the union, and of serves the newest. Both are semilattices: neither order nor repetition
// matters.
func (*Seen) Merger() projections.Merger {
	return projections.Merger{
		Name: "seen.1",
		Merge: func(dst, key []byte, values [][]byte) ([]byte, error) {
			switch {
			case len(key) > 2 && projections.Tag(key[2]) == tagPlays:
				return union(dst, values)
			case len(key) > 2 && projections.Tag(key[2]) == tagServed:
				return mergeServes(dst, values)
			}
			return dst, projections.RowError("merged key", key)
		},
	}
}

// DropCache drops the cached rows of the maintenance, because a repair has changed rows. It is part
// of [projections.CacheDropper].
func (f *Seen) DropCache() { f.maintenance = maintenanceCache{} }

// Apply folds one event. A live play or serve is one blind write.
func (f *Seen) Apply(ev events.Event, b *projections.Batch) error {
	f.batch = b
	now := ev.Time
	if ev.Backfill {
		now = b.LogTime()
		if closed, err := f.isClosedToBackfills(&ev); err != nil || closed {
			return err
		}
	}
	switch ev.Kind {
	case events.Played:
		return f.addPlay(&ev, now)
	case events.Served:
		f.addServes(&ev)
		return nil
	case events.SeenCleared:
		return f.clearUser(ev.User, false)
	case events.UserDeleted:
		if err := f.hidden.Erase(ev.User, b); err != nil {
			return err
		}
		return f.clearUser(ev.User, true)
	case events.ItemHidden, events.ItemShown:
		return f.hidden.Apply(&ev, b)
	}
	return fmt.Errorf("seen: event of kind %s, which it does not read", ev.Kind)
}

// addPlay adds a play to the month in which it happened, unless no window reaches that month. now
// is the log time.
func (f *Seen) addPlay(ev *events.Event, now events.Micros) error {
	current := f.eventCalendar.monthOf(now)
	m := current
	if ev.Backfill {
		if m = f.eventCalendar.monthOf(ev.Time); f.isExpired(m, current) {
			return nil
		}
	}

	// The maintenance finds the month by the plan of the partition.
	if err := f.recordWrite(m, ev.User); err != nil {
		return err
	}

	// Merge the play into the row of the month without reading it.
	var hash uint64
	hash, f.key = itemHash(f.key, ev.Item)
	f.value = appendFingerprint(f.value[:0], fingerprintOf(hash, userSalt(ev.User)))
	f.key = monthKey(f.key[:0], m, tagPlays, ev.User)
	f.batch.Merge(f.key, f.value)
	return nil
}

// The values of the row that keeps out backfills about a user.
const (
	// closedByClearing keeps out plays and serves.
	closedByClearing byte = iota + 1
	// closedByDeletion keeps out all backfills.
	closedByDeletion
)

// clearUser deletes the plays and serves of a user. Later backfills of them are ignored, because
// history comes before every live event. If the user was deleted, all later backfills about the
// user are.
func (f *Seen) clearUser(user string, deleted bool) error {
	// The plan names the months that may have rows of the user.
	p, err := f.readPlan(events.ShardOf(user).Partition())
	if err != nil {
		return err
	}
	for _, m := range p {
		for _, tag := range []projections.Tag{tagPlays, tagSealed} {
			f.key = monthKey(f.key[:0], m.month, tag, user)
			f.batch.Delete(f.key)
		}
	}
	f.key = servedKey(f.key[:0], user)
	f.batch.Delete(f.key)

	// Once all backfills are closed, there is nothing to keep out. The row has a keyed hash,
	// because it must not name an erased user.
	f.key = closedUserKey(f.key[:0], user, f.batch.KeyedHash(user))
	if f.batch.BackfillsClosed() {
		f.batch.Delete(f.key)
		return nil
	}

	// A user who was deleted before stays closed to all backfills.
	if before, err := f.readClosing(); err != nil || before == closedByDeletion {
		return err
	}
	f.value = append(f.value[:0], closedByClearing)
	if deleted {
		f.value[0] = closedByDeletion
	}
	f.batch.Set(f.key, f.value)
	return nil
}

// isClosedToBackfills reports whether a backfill is ignored, because its user was deleted, or, if
// it is a play or serve, because its user cleared what was seen.
func (f *Seen) isClosedToBackfills(ev *events.Event) (bool, error) {
	f.key = closedUserKey(f.key[:0], ev.User, f.batch.KeyedHash(ev.User))
	closing, err := f.readClosing()
	return closing == closedByDeletion || closing == closedByClearing && ev.Kind != events.ItemHidden, err
}

// readClosing returns the value of the row at f.key that keeps out backfills, or 0 if there is no
// row.
func (f *Seen) readClosing() (byte, error) {
	row, ok, err := f.batch.Get(f.key)
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 1 {
		return 0, projections.RowError("closed user", row)
	}
	return row[0], nil
}
