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
	// Now archives the log up to a sequence, and returns when that is done.
	Now(ctx context.Context, seq uint64) error
}

// Options are the parts of a running service. Its archiver must run in this process, because it holds the lease of the archive.
type Options struct {
	Log       *eventlog.Log
	Publisher *eventlog.Publisher
	Archive   *archive.Archive
	Archiver  Archiver
	// Stores are all projections of the process. They are rebuilt from the scrubbed log, which Subscribe reads.
	Stores    []*live.Live
	Subscribe rebuild.SubscribeFunc
	Rebuild   rebuild.Options
	// Keeper takes a new snapshot, and all older ones in Bucket are removed. A nil Bucket means there are no snapshots; a nil Keeper
	// only removes them.
	Keeper *snapshot.Keeper
	Bucket bucket.Bucket
	// Buckets are the buckets of the archive and of the snapshots. Files that a crash left half written there are removed.
	Buckets []bucket.Bucket
	// Part is that of this process, and Nodes are the others, if it is a node of a cluster; nil otherwise. Shared is then the bucket in
	// which all nodes have theirs ([snapshot.OfNode]).
	Part   *Part
	Nodes  *Nodes
	Shared bucket.Bucket
}

// Report is the result of an erasure.
type Report struct {
	// Deleted is the position of the user_deleted event. Later events with the same id belong to a new user, and were not touched.
	Deleted events.Position
	// Scrubbed says what was changed in the archive.
	Scrubbed archive.Scrubbed
	// Epoch is the present epoch of the log, Head the last sequence of the previous one, Pause how long the log refused to accept events.
	Epoch uint32
	Head  uint64
	Pause time.Duration
	// Rebuilt has a line for each store, Nodes for each other node.
	Rebuilt, Nodes []string
	// Snapshots are the names of the snapshots that were removed.
	Snapshots []string
	// Left has what an operator must still do, a line each.
	Left []string
}

// String returns the report for people. It does not name the user.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deleted at sequence %d\n", r.Deleted.Seq)
	fmt.Fprintf(&b, "archive: %d events and %d rejects scrubbed, %d segments written anew\n", r.Scrubbed.Changed+r.Scrubbed.Dropped,
		r.Scrubbed.Rejects, r.Scrubbed.Segments)
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

// ErrUser is returned for an id that no user can have.
var ErrUser = errors.New("erase: not the id of a user")

// ErrUnknownUser is returned for a user whom no event of the log names, such as one whose id was misspelled. Nothing was changed.
var ErrUnknownUser = errors.New("erase: no event of the log names this user: nothing was erased")

// checkBytes is how much of the log checkKnown decodes at a time.
const checkBytes = 8 << 20

// checkKnown returns [ErrUnknownUser] unless an event of the log names the user, or the pseudonym that an earlier erasure has left. It reads
// the log from the beginning to the first such event; rows would not do, because a user may have none left and still be in the log.
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
	names := func(ev *events.Event) bool {
		return ev.User == user || ev.Peer == user || ev.RepinUser == user || ev.User == pseudonym || ev.Peer == pseudonym || ev.RepinUser == pseudonym
	}
	for {
		envs, err := sub.Next(ctx, checkBytes)
		if err != nil {
			return err
		}
		for _, env := range envs {
			for i := range env.Events {
				if names(&env.Events[i]) {
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

// Erase removes a user from the log, the archive, the stores and the snapshots. After an interruption the caller runs it again: it
// repeats all steps, and those that are done cost little. An error names its step; the steps before it are done.
//
// The order of the steps matters. The deletion is folded first, while the id is still in the log. The archive is scrubbed before the
// stream, so that no moment loses events. Stores are rebuilt from the scrubbed log, and snapshots are taken from rebuilt stores.
//
// It refuses a user whom no event names, with [ErrUnknownUser], before it changes anything. Snapshots that were taken by hand stay, as in
// every other removal; the report names those that may have the user.
//
// In a cluster, every node must have flushed the deletion before anything is scrubbed; [ErrNode] otherwise. When the epoch has begun,
// each builds its stores anew by itself, also if this process does not see the end of it.
func Erase(ctx context.Context, o Options, user string, p *replay.Progress) (r Report, err error) {
	if err := events.ValidateID(user); err != nil {
		return r, fmt.Errorf("%w: %w", ErrUser, err)
	}
	if p == nil {
		p = &replay.Progress{}
	}
	began := time.Now()
	if err := o.checkKnown(ctx, user, p); errors.Is(err, ErrUnknownUser) {
		return r, err
	} else if err != nil {
		return r, fmt.Errorf("look for the user in the log: %w", err)
	}
	release := func() {}
	if o.Part != nil {
		if release, err = o.Part.Hold(ctx); err != nil {
			return r, err
		}
		release = sync.OnceFunc(release)
		defer release()
	}
	if err := o.Nodes.flush(ctx, o.Log.Epoch(), 0); err != nil {
		return r, err
	}
	slot, err := o.prepare(ctx, user, &r)
	if err != nil {
		return r, err
	}
	s := newScrubber(o.Log.ID(), user, r.Deleted.Seq, slot)
	p.StartPhase(replay.Writing, "bytes", 0)
	r.Scrubbed, err = o.Archive.Scrub(ctx, s.event, s.reject, func(done, total uint64) {
		p.SetTotal(total)
		p.SetDone(done)
	})
	if err != nil {
		return r, fmt.Errorf("scrub the archive: %w", err)
	}
	if places := s.staying.String(); places != "" {
		r.Left = append(r.Left, "the id stays where an event contains it as a part of another text: "+places)
	}
	// An interrupted scrub or seal may have left segments that still have the id, and that the archive no longer names.
	if err := o.Archive.Sweep(ctx); err != nil {
		return r, fmt.Errorf("sweep the archive: %w", err)
	}
	if err := o.nextEpoch(ctx, &r); err != nil {
		return r, fmt.Errorf("begin a new epoch: %w", err)
	}
	if err := o.cleanStores(ctx, &r, p); err != nil {
		return r, err
	}
	release()
	if r.Nodes, err = o.Nodes.clean(ctx, r.Epoch); err != nil {
		return r, err
	}
	if err := o.cleanSnapshots(ctx, &r, p); err != nil {
		return r, err
	}
	if err := o.cleanShared(ctx, &r, began); err != nil {
		return r, err
	}
	if err := o.cleanBuckets(began); err != nil {
		return r, fmt.Errorf("remove what was being written: %w", err)
	}
	return r, nil
}

// prepare deletes the user, and archives the deletion. It returns the slot of the deletion when all stores of all nodes have flushed it.
func (o *Options) prepare(ctx context.Context, user string, r *Report) (slot uint16, err error) {
	if r.Deleted, slot, err = o.deleteUser(ctx, user); err != nil {
		return slot, fmt.Errorf("delete the user: %w", err)
	}
	if err := o.Archiver.Now(ctx, r.Deleted.Seq); err != nil {
		return slot, fmt.Errorf("archive the log: %w", err)
	}
	if o.Part != nil {
		if err := o.Part.flushed(r.Deleted.Seq); err != nil {
			return slot, err
		}
	}
	return slot, o.Nodes.flush(ctx, o.Log.Epoch(), r.Deleted.Seq)
}

// deleteUser publishes the deletion and waits until every store has folded and flushed it. The flush is necessary: a store that
// continued before the deletion after a crash would read the deletion of a pseudonym from the scrubbed log, and keep the user's rows.
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
	return at, slot, flush(ctx, o.Stores, at.Seq)
}

// nextEpoch begins a new epoch of the log, and destroys the messages of the old one in the stream. They are archived before, up to the
// head at which publishing pauses.
func (o *Options) nextEpoch(ctx context.Context, r *Report) error {
	began := time.Now()
	end, err := o.Log.NextEpoch(ctx, r.Deleted.Seq, func(ctx context.Context, head uint64) (events.Cursor, error) {
		err := o.Archiver.Now(ctx, head)
		return o.Archive.End(), err
	})
	r.Pause = time.Since(began)
	if err != nil {
		return err
	}
	r.Epoch, r.Head = o.Log.Epoch(), end.Seq
	// This archives the new epoch's begin, and makes the archiver forget what it kept of the old one.
	return o.Archiver.Now(ctx, end.Seq)
}

// cleanStores rebuilds the stores of this process.
func (o *Options) cleanStores(ctx context.Context, r *Report, p *replay.Progress) (err error) {
	p.SetMore(true)
	options := o.Rebuild
	options.Progress = p
	if r.Rebuilt, err = buildAnew(ctx, o.Stores, o.Subscribe, options); err == nil && o.Part != nil {
		err = o.Part.cleaned(r.Epoch)
	}
	return err
}

// cleanBuckets removes the files that interrupted calls of Put have left behind.
func (o *Options) cleanBuckets(began time.Time) error {
	var errs []error
	for _, b := range o.Buckets {
		errs = append(errs, cleanBucket(b, began))
	}
	return errors.Join(errs...)
}

func cleanBucket(b bucket.Bucket, began time.Time) error {
	if c, ok := b.(bucket.Cleaner); ok {
		return c.Clean(began)
	}
	return nil
}
