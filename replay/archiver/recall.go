package archiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// RecoveredIDs says which files of event ids in the archive were damaged, and whether all the event
// ids that are still needed were recovered when the files were replaced.
//
// A reader that continues at the end of the archive needs the ids of the events of the last horizon
// before that end (15 minutes of log time, [events.Horizon]). With these ids, the reader recognizes
// events that are published again, and drops them (invariant I6 in docs/invariants.md). The archive
// keeps the ids in files of their own, beside the segments.
type RecoveredIDs struct {
	// Damaged has one error for each file that is missing or damaged. The text of the error names
	// the file.
	Damaged []error
	// Complete is true if a reader at the end of the archive has all the event ids that it needs:
	// either the damaged files had only ids from before the horizon, or the stream has the whole
	// horizon. Then no event that is published from now on can be accepted twice.
	//
	// Complete does not say that the ids from before the present epoch are kept. A reader that
	// starts at the beginning of the epoch then reads the archive instead of the stream; see
	// [archive.Archive.ReplaceRepeats].
	Complete bool
	// From and To are set only if Complete is false. They bound the log times of the events whose
	// ids may be lost: after From, up to and including To. If such an event is published again
	// within the horizon after its log time, and its id is lost, it is accepted a second time.
	From, To events.Micros
}

// RecoverIDs replaces damaged files of event ids in the archive. It collects the ids that the
// undamaged files and the stream have, and stores them in a new file. RecoverIDs returns nil if no
// file is damaged. It changes nothing else in the archive.
//
// RecoverIDs is for a log that needs no [Restore]: the caller must have called [CheckStream], and
// CheckStream must have found no Problem. The caller must also make sure that no other process
// changes the archive meanwhile, because RecoverIDs does not acquire the lease of the archiver. If
// the stream is embedded and another process has it open, RecoverIDs returns [events.ErrLocked].
func RecoverIDs(ctx context.Context, b bucket.Bucket, cfg eventlog.Config) (r *RecoveredIDs, err error) {
	a, err := openArchive(ctx, b)
	if err != nil {
		return nil, err
	}
	log, err := openDamaged(ctx, a, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
	return replaceDamagedRepeats(ctx, a, log)
}

// replaceDamagedRepeats replaces damaged files of event ids in the archive, for [RecoverIDs] and
// [Restore]. It returns nil if no file is damaged. The word repeats in names means event ids, which
// are remembered to recognize repeats. log gives access to the stream; nil means that there is no
// stream, or none that can be used.
func replaceDamagedRepeats(ctx context.Context, a *archive.Archive, log *eventlog.Log) (*RecoveredIDs, error) {
	known, err := a.ReadRepeats(ctx)
	if err != nil || len(known.Damaged) == 0 {
		return nil, err
	}

	// All ids that are in damaged files and within the horizon are of log times after known.From,
	// up to known.To. If known.From is not before known.To, there are no such ids, so a reader at
	// the end of the archive misses none.
	r := &RecoveredIDs{Damaged: known.Damaged, Complete: known.From >= known.To}
	repeats := known.Repeats
	if log != nil {
		read, whole, err := log.SalvageRepeats(ctx, known.End)
		if err != nil {
			return nil, fmt.Errorf("read the event ids of the horizon before the end of the archive: %w", err)
		}
		repeats = append(repeats, read...)
		r.Complete = r.Complete || whole
	}
	if !r.Complete {
		r.From = known.From
		r.To = known.To
	}
	return r, a.ReplaceRepeats(ctx, known.End, repeats)
}

// String returns a text for people, which names the damaged files and says which events might be
// accepted twice. The text shows times in whole seconds.
func (r *RecoveredIDs) String() string {
	var b strings.Builder
	for _, err := range r.Damaged {
		fmt.Fprintf(&b, "Event ids: %v.\n", err)
	}

	if r.Complete {
		b.WriteString("What still counts of them was found elsewhere: nothing is taken twice.\n")
		return b.String()
	}
	formatTime := func(t events.Micros) string { return t.Time().UTC().Format(time.RFC3339) }
	horizon := time.Duration(events.Horizon) * time.Microsecond
	fmt.Fprintf(&b, "Not all were found elsewhere: an event of after %s up to %s that is published again with its event id within %v "+
		"of log time is taken a second time.\n", formatTime(r.From), formatTime(r.To), horizon)
	return b.String()
}
