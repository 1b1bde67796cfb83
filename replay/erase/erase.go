package erase

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
)

// Archiver archives the log up to a sequence when asked.
type Archiver interface {
	Now(ctx context.Context, seq uint64) error
}

// Options are the parts of a running service. Its archiver must be running in this process: it has the lease.
type Options struct {
	Log       *eventlog.Log
	Publisher *eventlog.Publisher
	Archive   *archive.Archive
	Archiver  Archiver
	// Stores are all projections of the process. They are built anew from the scrubbed log, which Subscribe reads.
	Stores    []*projections.Live
	Subscribe rebuild.SubscribeFunc
	Rebuild   rebuild.Options
	// Snapshots are those of Keeper in Bucket: all are removed, and a new one is taken. Nil: there are none.
	Keeper *snapshot.Keeper
	Bucket bucket.Bucket
	// Buckets are those of the archive and of the snapshots. What a crash left half written there is removed.
	Buckets []bucket.Bucket
}

// Report says what was done, and what was not.
type Report struct {
	// Deleted is the position of the user_deleted event. What is after it is of a new life, and was left alone.
	Deleted events.Position
	// Scrubbed is what became of the archive.
	Scrubbed archive.Scrubbed
	// Epoch is the one that the log is in now, Head the last sequence of the one before, Pause how long nobody could publish.
	Epoch uint32
	Head  uint64
	Pause time.Duration
	// Rebuilt has a line for each store.
	Rebuilt []string
	// Snapshots that were removed.
	Snapshots []string
	// Left says what a person has to look after.
	Left []string
}

// String says it for people. It does not name the user.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deleted at sequence %d\n", r.Deleted.Seq)
	fmt.Fprintf(&b, "archive: %d events and %d rejects scrubbed, %d segments written anew\n", r.Scrubbed.Changed+r.Scrubbed.Dropped,
		r.Scrubbed.Rejects, r.Scrubbed.Segments)
	fmt.Fprintf(&b, "log: epoch %d after sequence %d; nobody could publish for %v\n", r.Epoch, r.Head, r.Pause.Round(time.Millisecond))
	for _, line := range r.Rebuilt {
		fmt.Fprintf(&b, "%s\n", line)
	}
	if len(r.Snapshots) > 0 {
		fmt.Fprintf(&b, "snapshots removed: %s\n", strings.Join(r.Snapshots, ", "))
	}
	for _, line := range r.Left {
		fmt.Fprintf(&b, "left: %s\n", line)
	}
	return b.String()
}

// ErrUser says that the id is none that a user can have.
var ErrUser = errors.New("erase: not the id of a user")

// Erase takes a user out of everything. It may be run again after it was interrupted, and does all of it again then: what was
// done already costs little. An error names the step; those before it are done.
func Erase(ctx context.Context, o Options, user string, p *replay.Progress) (r Report, err error) {
	if err := events.ValidateID(user); err != nil {
		return r, fmt.Errorf("%w: %w", ErrUser, err)
	}
	if p == nil {
		p = &replay.Progress{}
	}
	began := time.Now()
	var slot uint16
	if r.Deleted, slot, err = o.deleteUser(ctx, user); err != nil {
		return r, fmt.Errorf("delete the user: %w", err)
	}
	if err := o.Archiver.Now(ctx, r.Deleted.Seq); err != nil {
		return r, fmt.Errorf("archive the log: %w", err)
	}
	s := newScrubber(o.Log.ID(), user, r.Deleted.Seq, slot)
	p.Start("bytes", 0)
	r.Scrubbed, err = o.Archive.Scrub(ctx, s.event, s.reject, func(done, total uint64) {
		p.Total(total)
		p.Set(done)
	})
	if err != nil {
		return r, fmt.Errorf("scrub the archive: %w", err)
	}
	// A scrub or a seal that was interrupted has left segments as they were before.
	if err := o.Archive.Sweep(ctx); err != nil {
		return r, fmt.Errorf("sweep the archive: %w", err)
	}
	if err := o.nextEpoch(ctx, &r); err != nil {
		return r, fmt.Errorf("begin a new epoch: %w", err)
	}
	if err := o.cleanStores(ctx, &r, p); err != nil {
		return r, err
	}
	if err := o.cleanSnapshots(ctx, &r, p); err != nil {
		return r, fmt.Errorf("remove snapshots: %w", err)
	}
	if err := o.cleanBuckets(began); err != nil {
		return r, fmt.Errorf("remove what was being written: %w", err)
	}
	return r, nil
}

// deleteUser publishes the deletion and waits until every store has folded it, and has it on disk: a store that continued before
// it after a crash would find the deletion of a pseudonym in the scrubbed log, and keep the rows of the user.
func (o *Options) deleteUser(ctx context.Context, user string) (at events.Position, slot uint16, err error) {
	id := "erase-" + rand.Text()
	ev := &skeinv1.Event{EventId: id, Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: user}}}
	if refused := events.Validate(ev); refused != nil {
		return at, 0, refused
	}
	res, err := o.Publisher.Publish(ctx, []*skeinv1.Event{ev}, eventlog.PublishOptions{})
	if err != nil {
		return at, 0, err
	}
	at = res.Position
	msg, err := o.Log.ReadMessage(ctx, at.Seq)
	if err != nil {
		return at, 0, err
	}
	var batch skeinv1.EventBatch
	if err := proto.Unmarshal(msg.Data, &batch); err != nil {
		return at, 0, err
	}
	for i, ev := range batch.GetEvents() {
		if ev.GetEventId() == id {
			slot = uint16(i)
		}
	}
	for _, s := range o.Stores {
		err := s.WaitFor(ctx, at.Seq)
		if err == nil {
			err = s.Flush()
		}
		if err != nil {
			return at, 0, fmt.Errorf("%s: %w", s.Name(), err)
		}
	}
	return at, slot, nil
}

// nextEpoch has the log continue in a new epoch, and destroys what the stream holds of the old one.
func (o *Options) nextEpoch(ctx context.Context, r *Report) error {
	began := time.Now()
	end, err := o.Log.NextEpoch(ctx, func(ctx context.Context, head uint64) (events.Cursor, error) {
		err := o.Archiver.Now(ctx, head)
		return o.Archive.End(), err
	})
	r.Pause = time.Since(began)
	if err != nil {
		return err
	}
	r.Epoch, r.Head = o.Log.Epoch(), end.Seq
	// The archive is told of the epoch, and forgets what it kept of the old one.
	return o.Archiver.Now(ctx, end.Seq)
}

// cleanStores builds the stores anew: tables and manifests of the old generations hold keys of rows that are gone.
func (o *Options) cleanStores(ctx context.Context, r *Report, p *replay.Progress) error {
	p.More(true)
	for _, s := range o.Stores {
		options := o.Rebuild
		options.Progress = p
		report, err := rebuild.Rebuild(ctx, s, o.Subscribe, options)
		if err == nil {
			err = s.DeletePrevious(ctx)
		}
		if err != nil {
			return fmt.Errorf("build %s anew: %w", s.Name(), err)
		}
		r.Rebuilt = append(r.Rebuilt, s.Name()+": "+report)
	}
	return nil
}

// cleanSnapshots removes the snapshots of before, when there is one of after, and what a snapshot that was interrupted has left.
func (o *Options) cleanSnapshots(ctx context.Context, r *Report, p *replay.Progress) error {
	if o.Bucket == nil {
		return nil
	}
	var after string
	if o.Keeper != nil {
		taken, err := o.Keeper.Take(ctx, "", nil, p)
		if err != nil {
			return err
		}
		after = taken.Name
	}
	return snapshot.WhenFree(ctx, func() error {
		// One that was being taken when the stores were built anew may have come since: it is in the list too.
		old, err := snapshot.List(ctx, o.Bucket)
		if err != nil {
			return err
		}
		var names []string
		for _, s := range old {
			if s.Snapshot != after && !slices.Contains(names, s.Snapshot) {
				names = append(names, s.Snapshot)
			}
		}
		if len(names) == 0 {
			// There are none to be removed by name, but perhaps files that none names.
			_, err = snapshot.Prune(ctx, o.Bucket, 0)
			return err
		}
		if _, err = snapshot.Remove(ctx, o.Bucket, names...); err == nil {
			r.Snapshots = names
		}
		return err
	})
}

// cleanBuckets removes what calls of Put that were interrupted have left behind.
func (o *Options) cleanBuckets(began time.Time) error {
	var errs []error
	for _, b := range o.Buckets {
		if c, ok := b.(bucket.Cleaner); ok {
			errs = append(errs, c.Clean(began))
		}
	}
	return errors.Join(errs...)
}
