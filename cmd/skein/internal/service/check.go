package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// NoLogYet is the output of Check if there is neither a log nor an archive.
const NoLogMessage = "there is no log yet: a start begins one, and nothing is to be rebuilt"

// Check reports what a start with these options would do: which stores would continue, which would be rebuilt, and the time and disk for
// that. It changes nothing, and returns the number of rebuilds.
func Check(ctx context.Context, o Options, out io.Writer) (rebuilds int, err error) {
	held, err := hasArchivedLog(ctx, o.Maintenance.Archive)
	if err != nil {
		return 0, err
	}
	o.Log.Existing = true
	log, err := eventlog.Open(ctx, o.Log)
	switch {
	case errors.Is(err, events.ErrNoLog) && !held:
		fmt.Fprintln(out, NoLogMessage)
		return 0, nil
	case err != nil:
		return 0, explainLostLog(err, o.Maintenance.Archive)
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
	a := &Service{log: log, maintenance: maintenance{options: o.Maintenance}}
	if err := a.openArchive(ctx); err != nil {
		return 0, err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return 0, err
	}
	var lives, outdated []*live.Live
	defer func() {
		for _, serving := range lives {
			err = errors.Join(err, serving.Close())
		}
	}()
	for _, fold := range all.Constructors(o.Settings) {
		serving, err := live.Open(live.Options{New: fold, Options: store.Options{
			Dir: filepath.Join(o.Dir, StoresDir), ReadOnly: true, Logger: o.Logger,
		}, Log: log.ID(), Epoch: log.Epoch()})
		if errors.Is(err, projections.ErrNoStore) {
			fmt.Fprintf(out, "%s: no store yet: to be built from %d envelopes\n", fold().Name(), head.Last)
			continue
		}
		if err != nil {
			return 0, err
		}
		lives = append(lives, serving)
		st, replacement := serving.Status(), serving.Replacement()
		switch {
		case st.Error == nil:
			fmt.Fprintf(out, "%s generation %d: continues at sequence %d of %d\n", st.Name, st.Generation, st.Cursor.Seq, head.Last)
		case replacement != "":
			fmt.Fprintf(out, "%s generation %d: %s; a start continues %s instead\n", st.Name, st.Generation, st.Error, replacement)
		default:
			outdated = append(outdated, serving)
		}
	}
	steps, err := rebuild.Plan(outdated, rebuild.Log{Head: head.Last, Bytes: a.estimateLogBytes(ctx)})
	if err != nil {
		return 0, err
	}
	for _, s := range steps {
		fmt.Fprintln(out, s)
	}
	return len(steps), nil
}
