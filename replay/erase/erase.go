package erase

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/live"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/rebuild"
	"github.com/skein-feed/skein/replay/snapshot"
)

// Archiver archives the log on request.
type Archiver interface {
	// ArchiveNow archives the log up to the sequence seq. It returns when that is done.
	ArchiveNow(ctx context.Context, seq uint64) error
}

// Options are the parts of a running service that an erasure needs. The archiver must run in this process, because it holds the lease of the
// archive.
type Options struct {
	Log       *eventlog.Log
	Publisher *eventlog.Publisher
	Archive   *archive.Archive
	Archiver  Archiver
	// Stores are the stores of all projections of the process. They are rebuilt from the scrubbed log, which Subscribe reads.
	Stores    []*live.Live
	Subscribe rebuild.SubscribeFunc
	Rebuild   rebuild.Options
	// Keeper takes a new snapshot into Bucket, from which all older ones are removed. If Keeper is nil, they are only removed. If Bucket is
	// nil, there are no snapshots.
	Keeper *snapshot.Scheduler
	Bucket bucket.Bucket
	// Buckets are the buckets of the archive and of the snapshots. Files that a crash has left half written are removed from them.
	Buckets []bucket.Bucket
	// Part is the part of this process in the erasure, and Nodes are the other nodes. Both are nil if the process is not a node of a cluster.
	Part  *Part
	Nodes *Nodes
	// Shared is the bucket that contains the buckets of all nodes ([snapshot.OfNode]).
	Shared bucket.Bucket
}

// Report is the result of an erasure.
type Report struct {
	// Deleted is the position of the user_deleted event. Later events with the same id belong to a new user and were not changed.
	Deleted events.Position
	// Scrubbed counts what was changed in the archive.
	Scrubbed archive.ScrubResult
	// Epoch is the new epoch of the log, and Head is the last sequence of the previous one. Pause is for how long nobody could publish.
	Epoch uint32
	Head  uint64
	Pause time.Duration
	// Rebuilt has one line for each store of this process, and Nodes one for each other node.
	Rebuilt, Nodes []string
	// Snapshots are the names of the snapshots that were removed.
	Snapshots []string
	// Left says what an operator must still do, one line for each task.
	Left []string
}

// String reports the result to people. It does not name the user.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deleted at sequence %d\n", r.Deleted.Seq)
	fmt.Fprintf(&b, "archive: %d events and %d rejects scrubbed, %d segments written anew\n",
		r.Scrubbed.Changed+r.Scrubbed.Dropped, r.Scrubbed.Rejects, r.Scrubbed.Segments)
	fmt.Fprintf(&b, "log: epoch %d after sequence %d; nobody could publish for %v\n", r.Epoch, r.Head, r.Pause.Round(time.Millisecond))
	for _, line := range slices.Concat(r.Rebuilt, r.Nodes) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	if len(r.Snapshots) > 0 {
		fmt.Fprintln(&b, removedLine(r.Snapshots))
	}
	for _, line := range r.Left {
		fmt.Fprintf(&b, "left: %s\n", line)
	}
	return b.String()
}

// ErrUser means that no user can have this id.
var ErrUser = errors.New("erase: not the id of a user")

// ErrUnknownUser means that no event of the log names the user, for example because the id was misspelled. Nothing was changed.
var ErrUnknownUser = errors.New("erase: no event of the log names this user: nothing was erased")

// maxReadBytes is how many bytes of the log checkKnown decodes at a time.
const maxReadBytes = 8 << 20

// checkKnown returns [ErrUnknownUser] unless an event of the log names the user, or the pseudonym that an earlier erasure has left of the user.
// It reads the log from the beginning to the first such event. To look for rows of the user would not be enough: a user may have none left
// and still be in the log.
func (o *Options) checkKnown(ctx context.Context, user string, p *replay.Progress) error {
	head, err := o.Log.Head(ctx)
	if err != nil {
		return err
	}
	if head.Last == 0 {
		return ErrUnknownUser
	}
	sub, err := o.Subscribe(events.Cursor{}, events.AllKinds)
	if err != nil {
		return err
	}
	defer sub.Close()

	p.StartPhase(replay.Reading, "envelopes", head.Last)
	pseudonym := events.NewKeyedHash(o.Log.ID()).Pseudonym(user)
	namesUser := func(ev *events.Event) bool {
		ids := []string{ev.User, ev.Peer, ev.RepinUser}
		return slices.Contains(ids, user) || slices.Contains(ids, pseudonym)
	}

	for {
		envs, err := sub.Next(ctx, maxReadBytes)
		if err != nil {
			return err
		}
		for _, env := range envs {
			for i := range env.Events {
				if namesUser(&env.Events[i]) {
					return nil
				}
			}
			for _, reject := range env.Rejects {
				if _, named := reject.RedactUser(user); named {
					return nil
				}
			}
			if env.Seq() >= head.Last {
				return ErrUnknownUser
			}
			p.SetDone(env.Seq())
		}
	}
}

// Erase removes a user from the log, the archive, the stores and the snapshots. If it is interrupted, the caller must run it again: it
// repeats all steps, of which those that are done take little time. An error names the step that has failed; the steps before it are done.
//
// The order of the steps matters. First, all stores fold the deletion, while the id is still in the log. The archive is scrubbed before the
// stream is destroyed, so that events are never lost. Stores are rebuilt from the scrubbed log, and snapshots are taken of rebuilt stores.
//
// Erase returns [ErrUnknownUser] before it changes anything if no event names the user. It does not remove snapshots that were taken by hand,
// like all other removals; the report names those that may contain the user.
//
// In a cluster, every node must have flushed the deletion before anything is scrubbed; Erase returns [ErrNode] if one cannot. After the new
// epoch has begun, each node rebuilds its stores by itself, even if this process does not live to see it.
func Erase(ctx context.Context, o Options, user string, p *replay.Progress) (r Report, err error) {
	if err := events.ValidateID(user); err != nil {
		return r, fmt.Errorf("%w: %w", ErrUser, err)
	}
	if p == nil {
		p = &replay.Progress{}
	}
	began := time.Now()

	err = o.checkKnown(ctx, user, p)
	if errors.Is(err, ErrUnknownUser) {
		return r, err
	}
	if err != nil {
		return r, fmt.Errorf("look for the user in the log: %w", err)
	}

	// Keep this process from building generations in the meantime: they may have read less of the log than the stores.
	release := func() {}
	if o.Part != nil {
		if release, err = o.Part.Hold(ctx); err != nil {
			return r, err
		}
		release = sync.OnceFunc(release)
		defer release()
	}

	// Ask first whether all nodes can take part, before the user is deleted.
	if err := o.Nodes.flushAll(ctx, o.Log.Epoch(), 0); err != nil {
		return r, err
	}
	slot, err := o.deleteAndArchive(ctx, user, &r)
	if err != nil {
		return r, err
	}

	// Scrub the archive.
	s := newScrubber(o.Log.ID(), user, r.Deleted.Seq, slot)
	p.StartPhase(replay.Writing, "bytes", 0)
	r.Scrubbed, err = o.Archive.Scrub(ctx, s.scrubEvent, s.scrubReject, func(done, total uint64) {
		p.SetTotal(total)
		p.SetDone(done)
	})
	if err != nil {
		return r, fmt.Errorf("scrub the archive: %w", err)
	}
	if places := s.remaining.String(); places != "" {
		r.Left = append(r.Left, "the id stays where an event contains it as a part of another text: "+places)
	}

	// An interrupted scrub or seal may have left segments that still contain the id but that the manifest does not name.
	if err := o.Archive.Sweep(ctx); err != nil {
		return r, fmt.Errorf("sweep the archive: %w", err)
	}

	if err := o.beginEpoch(ctx, &r); err != nil {
		return r, fmt.Errorf("begin a new epoch: %w", err)
	}

	// Rebuild the stores of this process, which may build generations again after that, and wait until the other nodes have rebuilt theirs.
	if err := o.rebuildOwnStores(ctx, &r, p); err != nil {
		return r, err
	}
	release()
	if r.Nodes, err = o.Nodes.awaitRebuilt(ctx, r.Epoch); err != nil {
		return r, err
	}

	// Remove what still contains the user outside of the stores.
	if err := o.replaceOwnSnapshots(ctx, &r, p); err != nil {
		return r, err
	}
	if err := o.removeSharedSnapshots(ctx, &r, began); err != nil {
		return r, err
	}
	if err := o.removeUnfinishedFiles(began); err != nil {
		return r, fmt.Errorf("remove what was being written: %w", err)
	}
	return r, nil
}

// deleteAndArchive deletes the user and archives the log up to the deletion. It returns the slot of the deletion in its envelope, once all
// stores of all nodes have flushed the deletion.
func (o *Options) deleteAndArchive(ctx context.Context, user string, r *Report) (slot uint16, err error) {
	if r.Deleted, slot, err = o.deleteUser(ctx, user); err != nil {
		return slot, fmt.Errorf("delete the user: %w", err)
	}
	if err := o.Archiver.ArchiveNow(ctx, r.Deleted.Seq); err != nil {
		return slot, fmt.Errorf("archive the log: %w", err)
	}
	if o.Part != nil {
		if err := o.Part.recordFlushed(r.Deleted.Seq); err != nil {
			return slot, err
		}
	}
	return slot, o.Nodes.flushAll(ctx, o.Log.Epoch(), r.Deleted.Seq)
}

// deleteUser publishes the deletion and waits until every store of this process has folded and flushed it. The flush is necessary: if a store
// continued from before the deletion after a crash, it would read the deletion of a pseudonym from the scrubbed log, and keep the user's
// rows.
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

	// Find the slot of the event in its envelope, which may contain other events.
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

	return at, slot, flushStores(ctx, o.Stores, at.Seq)
}

// beginEpoch begins a new epoch of the log and destroys the messages of the old epoch in the stream. The archive has them all by then, up to
// the head at which publishing pauses.
func (o *Options) beginEpoch(ctx context.Context, r *Report) error {
	began := time.Now()
	end, err := o.Log.NextEpoch(ctx, r.Deleted.Seq, func(ctx context.Context, head uint64) (events.Cursor, error) {
		err := o.Archiver.ArchiveNow(ctx, head)
		return o.Archive.End(), err
	})
	r.Pause = time.Since(began)
	if err != nil {
		return err
	}
	r.Epoch = o.Log.Epoch()
	r.Head = end.Seq

	// Archive the beginning of the new epoch. The archiver then drops what it has kept in memory of the old one.
	return o.Archiver.ArchiveNow(ctx, end.Seq)
}

// rebuildOwnStores rebuilds the stores of this process.
func (o *Options) rebuildOwnStores(ctx context.Context, r *Report, p *replay.Progress) (err error) {
	p.SetMore(true) // the time of the steps after the rebuild is not estimated
	options := o.Rebuild
	options.Progress = p
	r.Rebuilt, err = rebuildStores(ctx, o.Stores, o.Subscribe, options)
	if err == nil && o.Part != nil {
		err = o.Part.recordRebuilt(r.Epoch)
	}
	return err
}

// removeUnfinishedFiles removes the files that interrupted uploads have left in the buckets. began is the time before which they were written.
func (o *Options) removeUnfinishedFiles(began time.Time) error {
	var errs []error
	for _, b := range o.Buckets {
		errs = append(errs, removeUnfinishedFilesOf(b, began))
	}
	return errors.Join(errs...)
}

// removeUnfinishedFilesOf does so in one bucket, if it is of a kind that has such files.
func removeUnfinishedFilesOf(b bucket.Bucket, began time.Time) error {
	if c, ok := b.(bucket.Cleaner); ok {
		return c.Clean(began)
	}
	return nil
}
