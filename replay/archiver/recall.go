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

// RecoveredIDs describes how damaged files of event ids in the archive were replaced (I6).
type RecoveredIDs struct {
	// Damaged has one error for each damaged file, which names the file.
	Damaged []error
	// Complete reports whether all event ids in them that still count were found elsewhere, so that
	// no event can be accepted twice.
	Complete bool
	// From and To limit the log time of the events whose ids are forgotten, if not all were found:
	// after From, up to To. If such an event is published again within the horizon, it is accepted
	// as another event.
	From, To events.Micros
}

// RecoverIDs replaces damaged files of event ids in the archive by the ids that the stream has and
// that other files have. It returns nil if no file is damaged. It changes nothing else. The log
// must be one in which [CheckStream] finds nothing wrong, and no other process may archive it.
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

// replaceDamagedRepeats replaces damaged files of event ids. log is the stream; nil means that
// there is none.
func replaceDamagedRepeats(ctx context.Context, a *archive.Archive, log *eventlog.Log) (*RecoveredIDs, error) {
	known, err := a.ReadRepeats(ctx)
	if err != nil || len(known.Damaged) == 0 {
		return nil, err
	}

	// The time from known.From to known.To is that of the damaged files, without the part that is
	// older than the horizon. If nothing remains of it, none of their ids counts any more.
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

// String tells people which events might be accepted twice.
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
