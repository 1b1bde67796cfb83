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

// Recalled is the result of replacing damaged files of event ids in the archive (I6).
type Recalled struct {
	// Damaged names the files.
	Damaged []error
	// Whole: all that still counts of them was read again in the stream, so nothing is taken twice.
	Whole bool
	// From and To bound the log time of the events whose ids are forgotten, if not all were found: after From, up to To. One that
	// is published again within the horizon after is taken as another.
	From, To events.Micros
}

// Heal replaces files of event ids that are damaged in the archive, by what the stream beside it says and by what else is known.
// Nil: none were. It changes nothing else. The log must be one that [Examine] finds whole; the process must be the only one that
// archives.
func Heal(ctx context.Context, b bucket.Bucket, cfg eventlog.Config) (r *Recalled, err error) {
	a, err := openArchive(ctx, b)
	if err != nil {
		return nil, err
	}
	log, err := openDamaged(ctx, a, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
	return recall(ctx, a, log)
}

// recall replaces files of event ids that are damaged. The log is the stream; nil means there is none.
func recall(ctx context.Context, a *archive.Archive, log *eventlog.Log) (*Recalled, error) {
	known, err := a.Remembered(ctx)
	if err != nil || len(known.Damaged) == 0 {
		return nil, err
	}
	r := &Recalled{Damaged: known.Damaged, Whole: known.From >= known.To}
	repeats := known.Repeats
	if log != nil {
		read, whole, err := log.SalvageRepeats(ctx, known.End)
		if err != nil {
			return nil, fmt.Errorf("read the event ids of the horizon before the end of the archive: %w", err)
		}
		repeats, r.Whole = append(repeats, read...), r.Whole || whole
	}
	if !r.Whole {
		r.From, r.To = known.From, known.To
	}
	return r, a.ReplaceRepeats(ctx, known.End, repeats)
}

// String tells people what may be taken twice.
func (r *Recalled) String() string {
	var b strings.Builder
	for _, err := range r.Damaged {
		fmt.Fprintf(&b, "Event ids: %v.\n", err)
	}
	if r.Whole {
		b.WriteString("What still counts of them was found elsewhere: nothing is taken twice.\n")
		return b.String()
	}
	at := func(t events.Micros) string { return t.Time().UTC().Format(time.RFC3339) }
	horizon := time.Duration(events.Horizon) * time.Microsecond
	fmt.Fprintf(&b, "Not all were found elsewhere: an event of after %s up to %s that is published again with its event id within %v "+
		"of log time is taken a second time.\n", at(r.From), at(r.To), horizon)
	return b.String()
}
