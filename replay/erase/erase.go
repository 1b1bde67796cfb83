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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
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

// Options are the parts of a running service that an erasure needs. The archiver must run in this
// process, because it holds the lease of the archive.
type Options struct {
	Log       *eventlog.Log
	Publisher *eventlog.Publisher
	Archive   *archive.Archive
	Archiver  Archiver
	// Stores are the stores of all projections of the process. They are rebuilt from the scrubbed
	// log, which Subscribe reads.
	Stores    []*live.Live
	Subscribe rebuild.SubscribeFunc
	Rebuild   rebuild.Options
	// Scheduler takes a new snapshot into Bucket, from which all older ones are removed. If it is
	// nil, they are only removed. If Bucket is nil, there are no snapshots.
	Scheduler *snapshot.Scheduler
	Bucket    bucket.Bucket
	// Buckets are the buckets of the archive and of the snapshots. Files that a crash has left half
	// written are removed from them.
	Buckets []bucket.Bucket
	// Part is the part of this process in the erasure. If it is nil, all partitions of all stores
	// are built from the log.
	Part *Part
	// Nodes are the other nodes. It is nil if the process is not a node of a cluster.
	Nodes *Nodes
	// Shared is the bucket that contains the buckets of all nodes ([snapshot.OfNode]).
	Shared bucket.Bucket
}

// Report is the result of an erasure.
type Report struct {
	// Users is the number of users who were erased.
	Users int
	// Unknown are the users whom no event of the log names. Each is given by its place in the list
	// of the erasure, from 1.
	Unknown []int
	// Deleted is the position of the last user_deleted event. Events with the id of a user after
	// the user's own deletion belong to a new user and were not changed.
	Deleted events.Position
	// Scrubbed counts what was changed in the archive.
	Scrubbed archive.ScrubResult
	// Epoch is the new epoch of the log, and Head is the last sequence of the previous one. Pause
	// is for how long nobody could publish.
	Epoch uint32
	Head  uint64
	Pause time.Duration
	// Replicas is how many NATS servers store the stream. If there are several, each also keeps
	// messages in a Raft log, which the erasure does not reach. Offline are those that did not run
	// when the messages of the old epoch were removed.
	Replicas int
	Offline  []string
	// Rebuilt has one line for each store of this process, and Nodes one for each other node.
	Rebuilt, Nodes []string
	// Snapshots are the names of the snapshots that were removed.
	Snapshots []string
	// Left says what an operator must still do, one line for each task.
	OperatorTasks []string
}

// String reports the result to people. It does not name the users.
func (r Report) String() string {
	var b strings.Builder
	if r.Users == 1 {
		fmt.Fprintf(&b, "deleted at sequence %d\n", r.Deleted.Seq)
	} else {
		fmt.Fprintf(&b, "%d users deleted, the last at sequence %d\n", r.Users, r.Deleted.Seq)
	}
	for _, number := range r.Unknown {
		fmt.Fprintf(&b, "user %d of the list was not erased: no event of the log names this user\n", number)
	}
	fmt.Fprintf(&b, "archive: %d events and %d rejects scrubbed, %d segments written anew\n",
		r.Scrubbed.Changed+r.Scrubbed.Dropped, r.Scrubbed.Rejects, r.Scrubbed.Segments)
	fmt.Fprintf(&b, "log: epoch %d after sequence %d; nobody could publish for %v\n", r.Epoch, r.Head, r.Pause.Round(time.Millisecond))
	if r.Replicas > 1 {
		fmt.Fprintf(&b, "stream: erased messages were removed from %d of %d replicas, but not from the Raft logs of their servers\n",
			r.Replicas-len(r.Offline), r.Replicas)
	} else {
		fmt.Fprintln(&b, "stream: erased messages were removed; there are no replicas, and so no Raft logs")
	}
	for _, line := range slices.Concat(r.Rebuilt, r.Nodes) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	if len(r.Snapshots) > 0 {
		fmt.Fprintln(&b, removedSnapshotsLine(r.Snapshots))
	}
	for _, line := range r.OperatorTasks {
		fmt.Fprintf(&b, "left: %s\n", line)
	}
	return b.String()
}

// ErrUser means that no user can have this id.
var ErrUser = errors.New("erase: not the id of a user")

// ErrUnknownUser means that no event of the log names any of the users, for example because an id
// was misspelled. Nothing was changed.
var ErrUnknownUser = errors.New("erase: no event of the log names this user: nothing was erased")

// maxReadBytes is how many bytes of the log findKnownUsers decodes at a time. It bounds the memory
// that looking for users takes.
const maxReadBytes = 8 << 20

// newErasedUsers returns the users of a list of ids, each once. It returns [ErrUser] if an id is
// invalid or if the list is empty.
func newErasedUsers(log events.LogID, ids []string) (users []*erasedUser, err error) {
	hash := events.NewKeyedHash(log)
	seen := map[string]bool{}
	for i, id := range ids {
		if err := events.ValidateID(id); err != nil {
			return nil, fmt.Errorf("%w: user %d of the list: %w", ErrUser, i+1, err)
		}
		if !seen[id] {
			users = append(users, &erasedUser{id: id, pseudonym: hash.Pseudonym(id), number: i + 1})
			seen[id] = true
		}
	}
	if len(users) == 0 {
		return nil, fmt.Errorf("%w: the list is empty", ErrUser)
	}
	return users, nil
}

// findKnownUsers returns the users whom an event of the log names by the id, or by the pseudonym
// that an earlier erasure has left. It reads the log once, from the beginning until all are found.
// To look for rows of the users would not be enough: a user may have none left and still be in the
// log.
func (o *Options) findKnownUsers(ctx context.Context, users []*erasedUser, p *replay.Progress) (known []*erasedUser, err error) {
	head, err := o.Log.Head(ctx)
	if err != nil || head.Last == 0 {
		return nil, err
	}
	sub, err := o.Subscribe(events.Cursor{}, events.AllKinds)
	if err != nil {
		return nil, err
	}
	defer sub.Close()

	p.StartPhase(replay.Reading, "envelopes", head.Last)
	missing := map[string]*erasedUser{} // by id and by pseudonym
	for _, u := range users {
		missing[u.id] = u
		missing[u.pseudonym] = u
	}
	recordFound := func(u *erasedUser) {
		delete(missing, u.id)
		delete(missing, u.pseudonym)
		known = append(known, u)
	}

	for len(missing) > 0 {
		envs, err := sub.Next(ctx, maxReadBytes)
		if err != nil {
			return nil, err
		}
		for _, env := range envs {
			for i := range env.Events {
				ev := &env.Events[i]
				for _, id := range [...]string{ev.User, ev.Peer, ev.RepinUser} {
					if u := missing[id]; u != nil {
						recordFound(u)
					}
				}
			}
			for _, reject := range env.Rejects {
				for _, u := range users {
					if missing[u.id] == nil {
						continue // found already
					}
					if _, named := reject.RedactUser(u.id); named {
						recordFound(u)
					}
				}
			}
			if env.Seq() >= head.Last {
				return known, nil
			}
			p.SetDone(env.Seq())
		}
	}
	return known, nil
}

// Erase removes users from the log, the archive, the stores and the snapshots. However many there
// are, it reads the log and the archive as often as for one. If it is interrupted, the caller must
// run it again: it repeats all steps, of which those that are done take little time. An error names
// the step that has failed; the steps before it are done.
//
// The order of the steps matters. First, all stores fold the deletions, while the ids are still in
// the log. The archive is scrubbed before the stream is destroyed, so that events are never lost.
// Stores are built anew from the scrubbed log, and snapshots are taken of these stores. Of a store,
// only those partitions are folded to which events about the users were delivered. The rows of the
// others are copied.
//
// Users whom no event names are left out, and the report says so; if no event names any of the
// users, Erase returns [ErrUnknownUser] before it changes anything. It does not remove snapshots
// that were taken by hand, like all other removals; the report names those that may contain the
// users.
//
// In a cluster, every node must have flushed the deletions before anything is scrubbed; Erase
// returns [ErrNode] if one cannot. After the new epoch has begun, each node builds its stores anew
// by itself, even if this process does not live to see it.
func Erase(ctx context.Context, o Options, ids []string, p *replay.Progress) (r Report, err error) {
	users, err := newErasedUsers(o.Log.ID(), ids)
	if err != nil {
		return r, err
	}
	if p == nil {
		p = &replay.Progress{}
	}
	began := time.Now()

	known, err := o.findKnownUsers(ctx, users, p)
	if err != nil {
		return r, fmt.Errorf("look for the users in the log: %w", err)
	}
	if len(known) == 0 {
		return r, ErrUnknownUser
	}
	for _, u := range users {
		if !slices.Contains(known, u) {
			r.Unknown = append(r.Unknown, u.number)
		}
	}
	r.Users = len(known)

	// Keep this process from building generations in the meantime: they may have read less of the
	// log than the stores, and would miss the deletions.
	release := func() {}
	if o.Part != nil {
		release, err = o.Part.LockBuilds(ctx)
		if err != nil {
			return r, err
		}
		release = sync.OnceFunc(release)
		defer release()

		// If the stores have gone through all earlier erasures, take the present epoch into their
		// marker now. Then the rebuild below copies the partitions that this erasure does not
		// touch. If not, the rebuild builds all partitions, so the results of CheckErasures do not
		// matter.
		_, _ = o.Part.CheckErasures()
	}

	// Ask whether all nodes can take part before the users are deleted. Sequence 0 asks for no
	// flush.
	if err := o.Nodes.flushAll(ctx, o.Log.Epoch(), 0); err != nil {
		return r, err
	}
	if err := o.deleteAndArchive(ctx, known, &r); err != nil {
		return r, err
	}

	// Scrub the archive. Meanwhile, and until the new epoch begins, no node builds generations.
	stopRenewing := o.Nodes.keepFlushed(ctx, o.Log.Epoch(), r.Deleted.Seq)
	defer stopRenewing()
	s := newScrubber(known, o.projections())
	p.StartPhase(replay.Writing, "bytes", 0)
	r.Scrubbed, err = o.Archive.Scrub(ctx, s.scrubEvent, s.scrubReject, func(done, total uint64) {
		p.SetTotal(total)
		p.SetDone(done)
	})
	if err != nil {
		return r, fmt.Errorf("scrub the archive: %w", err)
	}
	if places := s.remaining.describe(len(ids) > 1); places != "" {
		r.OperatorTasks = append(r.OperatorTasks, "the id stays where an event contains it as a part of another text: "+places)
	}

	// An interrupted scrub or seal may have left segments that still contain an id but that the
	// manifest does not name. Remove their files.
	if err := o.Archive.Sweep(ctx); err != nil {
		return r, fmt.Errorf("sweep the archive: %w", err)
	}

	if err := o.beginEpoch(ctx, s.partitions, &r); err != nil {
		return r, fmt.Errorf("begin a new epoch: %w", err)
	}
	stopRenewing()

	// Rebuild the stores of this process, which may build generations again after that, and wait
	// until the other nodes have rebuilt theirs.
	if err := o.rebuildOwnStores(ctx, &r, p); err != nil {
		return r, err
	}
	release()
	r.Nodes, err = o.Nodes.awaitRebuilt(ctx, r.Epoch)
	if err != nil {
		return r, err
	}

	// Remove what still contains the users outside of the stores. A new snapshot is taken of the
	// stores first, so these steps come after the rebuild.
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

// projections returns an instance of each projection.
func (o *Options) projections() (of []projections.Projection) {
	for _, s := range o.Stores {
		of = append(of, s.New())
	}
	return of
}

// deleteAndArchive deletes the users and archives the log up to the last deletion. It returns once
// all stores of all nodes have flushed the deletions.
func (o *Options) deleteAndArchive(ctx context.Context, users []*erasedUser, r *Report) (err error) {
	r.Deleted, err = o.deleteUsers(ctx, users)
	if err != nil {
		return fmt.Errorf("delete the users: %w", err)
	}
	if err := o.Archiver.ArchiveNow(ctx, r.Deleted.Seq); err != nil {
		return fmt.Errorf("archive the log: %w", err)
	}
	if o.Part != nil {
		if err := o.Part.recordFlushed(r.Deleted.Seq); err != nil {
			return err
		}
	}
	return o.Nodes.flushAll(ctx, o.Log.Epoch(), r.Deleted.Seq)
}

// deletionsPerCall is how many deletions are published at a time. They share an envelope, so a
// large list needs few round trips to the log.
const deletionsPerCall = 100

// deleteUsers publishes the deletions, sets their positions, and waits until every store of this
// process has folded and flushed them. The flush is necessary: if a store continued from before a
// deletion after a crash, it would read the deletion of a pseudonym from the scrubbed log, and keep
// the user's rows.
func (o *Options) deleteUsers(ctx context.Context, users []*erasedUser) (last events.Position, err error) {
	for chunk := range slices.Chunk(users, deletionsPerCall) {
		var evs []*skeinv1.Event
		for _, u := range chunk {
			evs = append(evs, &skeinv1.Event{
				EventId: "erase-" + rand.Text(), Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: u.id}},
			})
		}
		res, err := o.Publisher.Publish(ctx, evs, eventlog.PublishOptions{})
		if err != nil {
			return last, err
		}
		last = res.Position
		for i, u := range chunk {
			u.seq = last.Seq
			u.slot = uint16(res.Slot + i)
		}
	}
	return last, flushStores(ctx, o.Stores, last.Seq)
}

// beginEpoch begins a new epoch of the log and destroys the messages of the old epoch in the
// stream. The archive has them all by then, up to the head at which publishing pauses. partitions
// has, by projection, the partitions to which events about the users were delivered.
func (o *Options) beginEpoch(ctx context.Context, partitions map[string]events.Partitions, r *Report) error {
	began := time.Now()
	end, err := o.Log.NextEpoch(ctx, r.Deleted.Seq, partitions, func(ctx context.Context, head uint64) (events.Cursor, error) {
		err := o.Archiver.ArchiveNow(ctx, head)
		return o.Archive.End(), err
	})
	r.Pause = time.Since(began) // publishers wait while NextEpoch runs
	if err != nil {
		return err
	}
	if err := o.Log.RemovePurged(); err != nil {
		return err
	}
	r.Epoch = o.Log.Epoch()
	r.Head = end.Seq
	if err := o.reportReplicas(ctx, r); err != nil {
		return err
	}

	// Archive the beginning of the new epoch. The archiver then drops what it has kept in memory of
	// the old one.
	return o.Archiver.ArchiveNow(ctx, end.Seq)
}

// reportReplicas reports how many NATS servers store the stream, and what erased messages these
// servers still have.
func (o *Options) reportReplicas(ctx context.Context, r *Report) (err error) {
	r.Replicas, r.Offline, err = o.Log.Replicas(ctx)
	if err != nil {
		return err
	}
	if r.Replicas > 1 {
		r.OperatorTasks = append(r.OperatorTasks, "each NATS server of the stream has erased messages in its Raft log, below STORE_DIR/jetstream/$SYS/_js_, "+
			"until it compacts that log, which it tries every few minutes while it runs")
	}
	if len(r.Offline) > 0 {
		r.OperatorTasks = append(r.OperatorTasks, fmt.Sprintf("NATS servers that do not run have all erased messages until they have caught up: start %s",
			strings.Join(r.Offline, ", ")))
	}
	return nil
}

// rebuildOwnStores makes new generations of the stores of this process.
func (o *Options) rebuildOwnStores(ctx context.Context, r *Report, p *replay.Progress) (err error) {
	p.SetUnestimatedPhasesFollow(true) // the time of the steps after the rebuild is not estimated
	options := o.Rebuild
	options.Progress = p
	var partitions map[string]events.Partitions
	if o.Part != nil {
		partitions = o.Part.partitionsToBuild()
	}
	r.Rebuilt, err = rebuildStores(ctx, o.Stores, partitions, o.Subscribe, options)
	if err != nil || o.Part == nil {
		return err
	}
	if err := o.Part.removeTemporaryStores(ctx); err != nil {
		return err
	}
	return o.Part.recordRebuilt(r.Epoch)
}

// removeUnfinishedFiles removes the files that interrupted uploads have left in the buckets. began
// is the time before which they were written.
func (o *Options) removeUnfinishedFiles(began time.Time) error {
	var errs []error
	for _, b := range o.Buckets {
		errs = append(errs, removeUnfinishedFilesOf(b, began))
	}
	return errors.Join(errs...)
}

// removeUnfinishedFilesOf removes the files that interrupted uploads have left in a bucket, if the
// bucket is of a kind that has such files.
func removeUnfinishedFilesOf(b bucket.Bucket, began time.Time) error {
	if c, ok := b.(bucket.Cleaner); ok {
		return c.Clean(began)
	}
	return nil
}
