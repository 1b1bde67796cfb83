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

// NoLogMessage is what Check prints if there is neither a log nor an archive.
const NoLogMessage = "there is no log yet: the service would create one, and has nothing to rebuild"

// Check prints what a start with these options would do: which stores would continue, and which
// would be rebuilt, with the time and the disk that each rebuild would take. Check changes nothing.
// It returns the number of rebuilds.
func Check(ctx context.Context, o Options, out io.Writer) (rebuilds int, err error) {
	hasArchive, err := hasArchivedLog(ctx, o.Maintenance.Archive)
	if err != nil {
		return 0, err
	}
	o.Log.Existing = true // Check must not create a log
	log, err := eventlog.Open(ctx, o.Log)
	if errors.Is(err, events.ErrNoLog) && !hasArchive {
		fmt.Fprintln(out, NoLogMessage)
		return 0, nil
	}
	if err != nil {
		return 0, explainLostLog(err, o.Maintenance.Archive)
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()

	// Only the parts of this service that openArchive and estimateLogBytes need are set.
	s := &Service{log: log, logger: o.Logger, maintenance: maintenance{options: o.Maintenance}}
	if err := s.openArchive(ctx); err != nil {
		return 0, err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return 0, err
	}

	defer func() {
		for _, projection := range s.Stores {
			err = errors.Join(err, projection.Close())
		}
	}()
	var outdated []*live.Live
	for _, newProjection := range all.Constructors(o.Settings) {
		projection, err := live.Open(live.Options{
			New: newProjection,
			Options: store.Options{
				Dir:         filepath.Join(o.Dir, StoresDir),
				ReadOnly:    true,
				Partitioned: true, // the stores of a node of a cluster hold some partitions only
				Logger:      o.Logger,
			},
			Log:   log.ID(),
			Epoch: log.Epoch(),
		})
		if errors.Is(err, projections.ErrNoStore) {
			fmt.Fprintf(out, "%s: has no store yet, and would be built from %d envelopes\n", newProjection().Name(), head.Last)
			continue
		}
		if err != nil {
			return 0, err
		}
		s.Stores = append(s.Stores, projection)

		st := projection.Status()
		replacement := projection.Replacement()
		switch {
		case st.Error == nil:
			fmt.Fprintf(out, "%s generation %d: continues at sequence %d of %d\n", st.Name, st.Generation, st.Cursor.Seq, head.Last)
		case replacement != "":
			fmt.Fprintf(out, "%s generation %d: %s; a start continues %s instead\n", st.Name, st.Generation, st.Error, replacement)
		default:
			outdated = append(outdated, projection)
		}
	}

	steps, err := rebuild.Plan(outdated, rebuild.Log{Head: head.Last, Bytes: s.estimateLogBytes(ctx)})
	if err != nil {
		return 0, err
	}
	for _, step := range steps {
		fmt.Fprintln(out, step)
	}
	return len(steps), nil
}
