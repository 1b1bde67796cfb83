package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

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
	// ArchiveNow archives the log at least up to the sequence seq. It returns when that is done. It
	// fails if this process does not archive.
	ArchiveNow(ctx context.Context, seq uint64) error
}

// Options are the parts of a running service that an erasure needs. The archiver of this process
// must be running, because only the process with the lease may change the archive, and the running
// archiver holds the lease.
type Options struct {
	Log       *eventlog.Log
	Publisher *eventlog.Publisher
	Archive   *archive.Archive
	Archiver  Archiver
	// Stores are the stores of all projections of the process. Erase rebuilds them. Stores of other
	// projections in the same directory are removed.
	Stores []*live.Live
	// Subscribe reads the log. Erase looks for the users with it, and later rebuilds the stores
	// from the scrubbed log with it.
	Subscribe rebuild.SubscribeFunc
	// Rebuild has the options of the rebuild of the stores. Erase sets Rebuild.Progress.
	Rebuild rebuild.Options
	// Bucket contains the snapshots of this process. If it is nil, there are none. Scheduler takes
	// a new snapshot into Bucket, and then all other scheduled snapshots are removed from there. If
	// Scheduler is nil, no new snapshot is taken, and all scheduled ones are removed.
	Scheduler *snapshot.Scheduler
	Bucket    bucket.Bucket
	// Buckets are the buckets of the archive and of the snapshots of this process. Files that
	// interrupted uploads have left there are removed. An element may be nil.
	Buckets []bucket.Bucket
	// Part keeps this process from building generations during the erasure, and records which
	// erasures the stores have gone through. If it is nil, nothing does this, temporary stores
	// stay, and all partitions of all stores are built from the log.
	Part *Part
	// Nodes are the other nodes. It is nil if the process is not a node of a cluster.
	Nodes *Nodes
	// Shared is the bucket that contains the buckets with the snapshots of all nodes
	// ([snapshot.OfNode]). It is nil outside of a cluster, and if this process takes no snapshots.
	Shared bucket.Bucket
}

// Report is the result of an erasure.
type Report struct {
	// Users is the number of users who were erased, without the unknown ones.
	Users int
	// Unknown are the users whom neither an event nor a reject of the log names. Each is given by
	// the user's place in the list of the erasure, from 1: the report must not have the id.
	Unknown []int
	// Deleted is the position of the envelope with the last user_deleted event of this erasure.
	// Each user has a deletion of their own. Later events with the id of the user belong to a new
	// user, and were not changed.
	Deleted events.Position
	// Scrubbed counts what was changed in the archive. An erasure only changes events, so
	// Scrubbed.Dropped is 0.
	Scrubbed archive.ScrubResult
	// Epoch is the new epoch of the log, and Head is the last sequence of the previous one. Pause
	// is for how long publishers had to wait, measured as the duration of [eventlog.Log.NextEpoch].
	Epoch uint32
	Head  uint64
	Pause time.Duration
	// Replicas is the number of NATS servers that should store the stream, by its configuration. If
	// it is greater than 1, each of these servers also keeps messages in a Raft log, which the
	// erasure does not reach. Offline has the names of those servers that were offline just after
	// the messages of the old epoch were removed from the stream, as far as the servers know.
	Replicas int
	Offline  []string
	// Rebuilt has one line for each store of this process, and one for each removed store of a
	// projection that this process does not have. Nodes has one line for each other node.
	Rebuilt, Nodes []string
	// Snapshots are the names of the snapshots that this process has removed. Those from the bucket
	// of a node have the prefix nodes/NAME/, unless they are from Bucket of the options. Snapshots
	// that another node has removed from its own bucket are not included.
	Snapshots []string
	// OperatorTasks says what an operator must still do or know, one line for each task.
	OperatorTasks []string
}

// String formats the report for people, one line for each result. It names no user by the id,
// because the operation's report is stored and outlives the erasure.
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

// ErrUser means that the list of users is not valid: it is empty, or no user can have one of the
// ids.
var ErrUser = errors.New("erase: not the id of a user")

// ErrUnknownUser means that neither an event nor a reject of the log names any of the users, for
// example because an id was misspelled. Nothing was changed.
var ErrUnknownUser = errors.New("erase: no event of the log names this user: nothing was erased")

// maxReadBytes is how many bytes of the log findKnownUsers reads at a time. It limits the memory
// that findKnownUsers takes. A single envelope may be larger.
const maxReadBytes = 8 << 20

// newErasedUsers returns the users of a list of ids, each once. The number of a user whose id is
// repeated is that of the first place. It returns [ErrUser] if an id is invalid or if the list is
// empty.
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

// findKnownUsers returns the users whom the log names: an event names a user by the id, or by the
// pseudonym that an earlier erasure has left. A reject names a user if its data contains the whole
// id ([containsWholeID]). The order is that in which the users are found.
//
// findKnownUsers reads the log once, from the beginning until all users are found, or up to the
// head that the log had at the call. If the log is empty, it returns no users. It does not look for
// rows in the stores instead, because a user may have no rows left and still be in the log.
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
					if containsWholeID(reject.Data, u.id) {
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

// containsWholeID reports whether the data of a reject contains an id, and not only as a part of a
// longer one: a mistyped id is often a part of the right id. The data is an encoded event, in which
// the length of an id precedes it, or anything else that was published, such as text or JSON.
func containsWholeID(data []byte, id string) bool {
	encodedLength := binary.AppendUvarint(nil, uint64(len(id)))
	// RuneError is what precedes the beginning of the data, or follows its end.
	isDelimiter := func(r rune, _ int) bool {
		return r == utf8.RuneError || !events.IsIDRune(r) || strings.ContainsRune("\"'`,;", r)
	}

	for begin := 0; ; begin++ {
		i := bytes.Index(data[begin:], []byte(id))
		if i < 0 {
			return false
		}
		begin += i
		before := data[:begin]
		after := data[begin+len(id):]
		if bytes.HasSuffix(before, encodedLength) || isDelimiter(utf8.DecodeLastRune(before)) && isDelimiter(utf8.DecodeRune(after)) {
			return true
		}
	}
}

// Erase removes users from the log, the archive, the stores and the snapshots: it replaces their
// ids in events by pseudonyms, and removes the files that may still contain the ids. It reads the
// log and the archive as often for many users as for one. Users whom the log does not name are left
// out, and the report says so. If the log names none of the users, Erase returns [ErrUnknownUser]
// before it changes anything.
//
// The order of the steps matters:
//   - All stores fold and flush the deletions while the ids are still in the log. A store that read
//     a deletion only from the scrubbed log would keep the user's rows.
//   - The archive gets the deletions and is scrubbed. Only then does the log begin a new epoch: the
//     readers of the new epoch read the old part of the log from the archive.
//   - Publishing pauses, and the rest of the old epoch is archived. Only then are the messages of
//     the old epoch destroyed in the stream, so no event is lost.
//   - The stores are built anew from the scrubbed log. Only those partitions of a store are folded
//     to which events about the users were delivered. The rows of the others are copied. If it is
//     not certain that the store has gone through all earlier erasures, all partitions are folded.
//   - A snapshot is taken of the new stores, and then the older ones are removed.
//
// In a cluster, every node must have flushed the deletions before anything is scrubbed. If a node
// cannot, Erase returns [ErrNode]. The deletions may have been published then, so the users are
// deleted, but not erased. After the new epoch has begun, each node builds its stores anew by
// itself, even if this process ends before that.
//
// If Erase fails or is interrupted, the caller must run it again. Steps that are done are not
// undone. The next call repeats all steps: it publishes new deletions, reads the log and the
// archive again, begins another epoch and rebuilds the stores again. Only segments of the archive
// that are scrubbed already are not written again. The report is not complete if there is an error.
//
// Erase does not remove snapshots that were taken by hand, because only an operator removes these.
// The report names those that may contain the users. If p is nil, the progress is not reported.
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

	// Keep this process from building generations until its stores are rebuilt. A generation that
	// is being built may have read less of the log than the stores, so it would read the deletions
	// only from the scrubbed log, and would keep rows of the users.
	release := func() {}
	if o.Part != nil {
		release, err = o.Part.LockBuilds(ctx)
		if err != nil {
			return r, err
		}
		release = sync.OnceFunc(release)
		defer release()

		// If the stores have gone through all earlier erasures, CheckErasures writes the present
		// epoch into their marker. The rebuild below then copies the partitions that this erasure
		// does not touch. If they have not, or if the marker cannot be written, the rebuild builds
		// all partitions. That is right in any case, so the results do not matter.
		_, _ = o.Part.CheckErasures()
	}

	// Before the users are deleted, ask whether all nodes can take part: an erasure that must be
	// refused should change nothing. With the sequence 0, the nodes flush nothing.
	if err := o.Nodes.flushAll(ctx, o.Log.Epoch(), 0); err != nil {
		return r, err
	}
	if err := o.deleteAndArchive(ctx, known, &r); err != nil {
		return r, err
	}

	// Scrub the archive. Meanwhile, and until the new epoch begins, keep the nodes from building
	// generations, for the same reason as this process.
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

	// An earlier scrub or seal that was interrupted may have left the files of segments that the
	// manifest does not name. They may contain the ids, and Scrub does not see them. Remove them.
	if err := o.Archive.Sweep(ctx); err != nil {
		return r, fmt.Errorf("sweep the archive: %w", err)
	}

	if err := o.beginEpoch(ctx, s.partitions, &r); err != nil {
		return r, fmt.Errorf("begin a new epoch: %w", err)
	}
	stopRenewing()

	// Rebuild the stores of this process. After that, this process may build generations again, so
	// release the lock before waiting until the other nodes have rebuilt their stores.
	if err := o.rebuildOwnStores(ctx, &r, p); err != nil {
		return r, err
	}
	release()
	r.Nodes, err = o.Nodes.awaitRebuilt(ctx, r.Epoch)
	if err != nil {
		return r, err
	}

	// Remove the old snapshots and unfinished files, which may still contain the users. These steps
	// come after the rebuild, because a new snapshot is taken of the new stores first.
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

// projections returns a new instance of the projection of each store. The scrubber asks these
// instances to which partitions an event was delivered.
func (o *Options) projections() (instances []projections.Projection) {
	for _, s := range o.Stores {
		instances = append(instances, s.New())
	}
	return instances
}

// deleteAndArchive publishes the deletions of the users, archives the log up to the last deletion,
// and returns when all stores of this process and of all other nodes have flushed the deletions. It
// sets r.Deleted. The log is archived before the other nodes are asked, because each node checks
// that its archive contains the deletions.
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

// deletionsPerCall is how many deletions are published in one call. The events of one call are in
// one envelope, so a large list needs few round trips to the log.
const deletionsPerCall = 100

// deleteUsers publishes the deletions, sets seq and slot of each user to the position of the user's
// deletion, and waits until every store of this process has folded and flushed the deletions. It
// returns the position of the last deletion.
//
// The flush is necessary because of crashes. A store that has not flushed a deletion continues from
// before the deletion after a crash. If the log is scrubbed by then, the store reads the deletion
// of a pseudonym instead of that of the user, and keeps the user's rows.
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
// stream. Before that, while publishing pauses, the archiver archives all of them. beginEpoch sets
// Epoch, Head, Pause, Replicas and Offline of the report. partitions has, by projection, the
// partitions to which events about the users were delivered. The log stores them for the other
// nodes.
func (o *Options) beginEpoch(ctx context.Context, partitions map[string]events.Partitions, r *Report) error {
	began := time.Now()
	end, err := o.Log.NextEpoch(ctx, r.Deleted.Seq, partitions, func(ctx context.Context, head uint64) (events.Cursor, error) {
		err := o.Archiver.ArchiveNow(ctx, head)
		return o.Archive.End(), err
	})
	r.Pause = time.Since(began) // publishers wait nearly as long as NextEpoch runs
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

	// The archive has everything up to this sequence, so this call adds no events to it. But the
	// call makes the archiver begin the new epoch in the archive, with a new writer, so that the
	// archiver keeps nothing of the old epoch in memory.
	return o.Archiver.ArchiveNow(ctx, end.Seq)
}

// reportReplicas sets Replicas and Offline of the report. It adds a task for the operator if
// servers of the stream still have erased messages: in their Raft logs, or because they are
// offline.
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

// rebuildOwnStores makes new generations of the stores of this process, removes the old ones and
// the temporary stores, and then records in the marker of the stores that they are of the new
// epoch. It sets r.Rebuilt, even if it fails after some stores.
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

// removeUnfinishedFiles removes the files that interrupted uploads have left in the buckets. It
// removes only files that were last written to before began, the time at which the erasure began.
// Younger files may belong to an upload that is under way, which would fail without its file.
func (o *Options) removeUnfinishedFiles(began time.Time) error {
	var errs []error
	for _, b := range o.Buckets {
		errs = append(errs, removeUnfinishedFilesOf(b, began))
	}
	return errors.Join(errs...)
}

// removeUnfinishedFilesOf is removeUnfinishedFiles for one bucket. It does nothing if b is nil or
// is not a [bucket.Cleaner]. Interrupted uploads to S3, for example, are not removed.
func removeUnfinishedFilesOf(b bucket.Bucket, began time.Time) error {
	if c, ok := b.(bucket.Cleaner); ok {
		return c.Clean(began)
	}
	return nil
}
