package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// Renew makes the next generation of a projection, with the same partitions and without any file of
// the present one, and cuts over to it, as [Rebuild] does. Only the partitions in fromLog are built
// from the log. The rows of the other partitions are read from the present generation and written
// into new files, so the caller must know that they are those of a fold of the log as it is now.
//
// If the rows cannot be copied, for example because a file is damaged, Renew builds all partitions
// from the log.
func Renew(
	ctx context.Context, serving *live.Live, fromLog events.Partitions, subscribe SubscribeFunc, o Options,
) (report string, err error) {
	held := serving.Holds()
	copied := held.Without(&fromLog)
	st := serving.Status()
	if copied.Len() == 0 || st.Damaged || st.State == store.Outdated || serving.Serving() == nil {
		return Rebuild(ctx, serving, subscribe, o)
	}

	report, err = renewPartly(ctx, serving, held, copied, subscribe, o.withDefaults())
	if err == nil || ctx.Err() != nil || errors.Is(err, replay.ErrDisk) {
		return report, err
	}
	o.withDefaults().Logger.Warn("all partitions are built from the log, since the rows of some could not be copied",
		"projection", serving.Name(), "partitions", copied.Len(), "error", err)
	return Rebuild(ctx, serving, subscribe, o)
}

// renewPartly makes the next generation and cuts over to it. It copies the rows of some of the
// partitions that the projection holds from the present generation, and builds the others from the
// log.
func renewPartly(
	ctx context.Context, serving *live.Live, held, copied events.Partitions, subscribe SubscribeFunc, o Options,
) (report string, err error) {
	// The present generation is its own source, like another node that gives rows.
	o.Sources = func() []Source {
		return []Source{{
			Name: "the present generation", Has: copied,
			Rows: func(ctx context.Context, _, fold string, of events.Partitions, do func(key, value []byte) error) error {
				return serving.ExportPartitions(ctx, fold, of, do)
			},
		}}
	}
	if err := checkDisk(serving, held, o); err != nil {
		return "", fmt.Errorf("renew %s: %w", serving.Name(), err)
	}

	r := rebuildState{live: serving, opts: o, startTime: time.Now()}
	r.next, err = serving.BuildNext(ctx, func(dir string) error {
		return r.joinParts(ctx, subscribe, dir, held, held, true)
	})
	if err != nil {
		return "", fmt.Errorf("renew %s: %w", serving.Name(), err)
	}
	if report, err = r.catchUpAndCutOver(ctx, subscribe); err != nil {
		return "", fmt.Errorf("renew %s: %w", serving.Name(), err)
	}
	return fmt.Sprintf("%d of %d partitions were built from the log; the others have the same rows as before, which were copied: ",
		held.Len()-r.copiedPartitions, held.Len()) + report, nil
}
