package erase

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/archiver"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/snapshot"
)

// testService is a service with a data directory.
type testService struct {
	t    *testing.T
	dir  string
	o    Options // of its erasures
	hub  *eventlog.Hub
	stop func()
}

// subscription implements [store.Subscription] with the head of the hub.
type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// subscribe subscribes to events of some kinds after a cursor. The zero cursor is the start of the
// log.
func (s *testService) subscribe(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = s.o.Log.Start()
	}
	sub, err := s.hub.SubscribeKinds(from, kinds)
	return subscription{sub, s.hub}, err
}

func startService(t *testing.T, dir string) *testService {
	t.Helper()
	return startFailingService(t, dir, &failureSchedule{})
}

// startFailingService starts a service whose parts fail as the schedule says.
func startFailingService(t *testing.T, dir string, d *failureSchedule) *testService {
	t.Helper()
	s := &testService{t: t, dir: dir}
	mustSucceed := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// Open the log with its archive.
	var err error
	s.o.Log, err = eventlog.Open(t.Context(), eventlog.Config{
		Dir:    filepath.Join(dir, "log"),
		Logger: slog.New(failingLogHandler{Handler: slog.DiscardHandler, failureSchedule: d}),
	})
	mustSucceed(err)
	openBucket := func(name string) bucket.Bucket {
		b, err := bucket.NewDir(filepath.Join(dir, name))
		mustSucceed(err)
		s.o.Buckets = append(s.o.Buckets, b)
		return failingBucket{b, d}
	}
	s.o.Archive, err = archive.Open(t.Context(), openBucket("bucket"), s.o.Log.ID())
	mustSucceed(err)
	s.o.Log.SetArchive(s.o.Archive)

	// Make the parts that read the log and write to it.
	s.hub = eventlog.NewHub(s.o.Log, eventlog.HubOptions{})
	s.o.Publisher, err = s.o.Log.NewPublisher(eventlog.PublisherOptions{})
	mustSucceed(err)
	logArchiver := archiver.New(archiver.Options{Log: s.o.Log, Hub: s.hub, Archive: s.o.Archive})
	s.o.Archiver = failingArchiver{logArchiver, d}
	s.o.Subscribe = func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		if err := d.failIfDue("subscribe"); err != nil {
			return nil, err
		}
		return s.subscribe(from, kinds)
	}

	s.o.Bucket = openBucket("snapshots")
	s.o.Scheduler = snapshot.New(snapshot.Options{
		Bucket:  s.o.Bucket,
		Scratch: filepath.Join(dir, "stores", "shadow-snapshots"),
		Stores:  s.snapshotStores,
	})

	// Run these parts and the stores until stop is called.
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	startPart := func(run func(context.Context) error) {
		wg.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("a part of the service ended with %v, expected that it runs until it is stopped", err)
			}
		})
	}
	startPart(s.hub.Run)
	startPart(logArchiver.Run)
	for _, newProjection := range all.Constructors(smallSettings()) {
		l, err := live.Open(live.Options{Options: store.Options{Dir: filepath.Join(dir, "stores")}, New: newProjection})
		mustSucceed(err)
		s.o.Stores = append(s.o.Stores, l)
		startPart(func(ctx context.Context) error {
			return l.Run(ctx, func(from events.Cursor) (store.Subscription, error) { return s.subscribe(from, events.AllKinds) })
		})
	}
	s.o.Part = &Part{Log: s.o.Log, Archive: s.o.Archive, Stores: s.o.Stores}
	mustSucceed(s.o.Part.OpenAlone(dir))

	s.stop = func() {
		err := s.o.Publisher.Close(context.Background())
		cancel()
		for _, l := range s.o.Stores {
			err = errors.Join(err, l.Close())
		}
		s.hub.Close()
		wg.Wait()
		if err := errors.Join(err, s.o.Log.Close(context.Background())); err != nil {
			t.Errorf("stop of the service: got %v, expected no error", err)
		}
	}

	// Wait until the archiver runs.
	for {
		err := logArchiver.ArchiveNow(t.Context(), 0)
		if !errors.Is(err, archiver.ErrNotRunning) {
			mustSucceed(err)
			return s
		}
		runtime.Gosched()
	}
}

// snapshotStores returns the stores of which snapshots are taken.
func (s *testService) snapshotStores() (stores []snapshot.Store) {
	for _, l := range s.o.Stores {
		stores = append(stores, l.Serving())
	}
	return stores
}

// publish appends the envelopes of a history in which some users have other names. It returns the
// last sequence.
func (s *testService) publish(envs []*events.Envelope, names map[string]string) (seq uint64) {
	s.t.Helper()
	for _, env := range envs {
		// Rename the users, and leave out events that a service would reject.
		var msgs []*skeinv1.Event
		for _, ev := range env.Events {
			for _, id := range []*string{&ev.User, &ev.Peer, &ev.RepinUser} {
				if name := names[*id]; name != "" {
					*id = name
				}
			}
			if msg := ev.Proto(); events.Validate(msg) == nil {
				msgs = append(msgs, msg)
			}
		}
		if len(msgs) == 0 {
			continue
		}

		res, err := s.o.Publisher.Publish(context.Background(), msgs, eventlog.PublishOptions{})
		if err != nil {
			s.t.Errorf("publish an envelope: got %v, expected no error", err)
			return seq
		}
		seq = max(seq, res.Position.Seq)
	}
	return seq
}

// waitForRows waits until all stores have reached a sequence, and returns their rows without those
// of the runtime.
func (s *testService) waitForRows(seq uint64) (rows []conformance.Rows) {
	s.t.Helper()
	s.mustReach(seq)
	for _, l := range s.o.Stores {
		rows = append(rows, conformance.RowsOf(s.t, l.Serving()).Own())
	}
	return rows
}

// mustReach waits until all stores have reached a sequence. Unlike waitForRows, it does not flush
// them.
func (s *testService) mustReach(seq uint64) {
	s.t.Helper()
	if err := s.waitForSeq(seq); err != nil {
		s.t.Fatal(err)
	}
}

// waitForSeq does the same, and returns the error.
func (s *testService) waitForSeq(seq uint64) error {
	for _, l := range s.o.Stores {
		if err := l.WaitFor(s.t.Context(), seq); err != nil {
			return fmt.Errorf("%s: %w", l.Name(), err)
		}
	}
	return nil
}

// withoutLogTime removes the row that depends on the time of the log alone: how far the maintenance
// of the seen store has come, which makes a step every 74 seconds. The table in keys.go of that
// package describes its key.
func withoutLogTime(rows conformance.Rows) conformance.Rows {
	key := projections.AppendPrefix(nil, projections.StoreShard, projections.FirstSeenTag+5)
	return slices.DeleteFunc(slices.Clone(rows), func(r conformance.Row) bool { return bytes.Equal(r.Key, key) })
}

// After an erasure, no file contains the id (I12). Everything else is unchanged, even in stores
// that are rebuilt from the log. Readers, publishers and the service continue.
func TestErasedIDIsInNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startService(t, dir)
	w := memlog.NewWorld(1, 30)
	s.mustReach(s.publish(w.Envelopes(600), erasedNames))
	for _, l := range s.o.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}

	// Each erasure begins an epoch of the log. The first epoch is 1.
	for index, user := range erased {
		epochBefore := uint32(index) + 1
		if len(conformance.FilesWith(t, dir, user)) == 0 {
			t.Fatalf("no file contains %s before the erasure, expected some", user)
		}

		// Delete the user before the erasure, and keep the rows from then.
		res, err := s.o.Publisher.Publish(t.Context(), []*skeinv1.Event{{
			Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: user}},
		}}, eventlog.PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}

		want := s.waitForRows(res.Position.Seq)

		// Only the epoch of the log changes.
		r, err := Erase(t.Context(), s.o, []string{user}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Epoch != epochBefore+1 || s.o.Archive.Epoch() != r.Epoch {
			t.Errorf("got epoch %d in the report and %d of the archive, expected %d for both", r.Epoch, s.o.Archive.Epoch(), epochBefore+1)
		}
		if r.Scrubbed.Changed == 0 || r.Pause <= 0 {
			t.Errorf("got the report %+v, expected scrubbed events and a pause", r)
		}
		wantErasure := eventlog.Erasure{Epoch: epochBefore, Seq: r.Deleted.Seq}
		if got := s.o.Log.LastErasure(); got != wantErasure {
			t.Errorf("got %+v as the last erasure in the log, expected %+v", got, wantErasure)
		}
		for i, rows := range s.waitForRows(r.Head) {
			withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s after erasing %s", s.o.Stores[i].Name(), user)
		}

		// The service continues.
		last := s.publish(w.Envelopes(20), map[string]string{"user1": "other1", "user2": "other2", "user3": "other3"})
		s.mustReach(last)
		if err := s.o.Archiver.ArchiveNow(t.Context(), last); err != nil {
			t.Error(err)
		}
	}

	s.stop()
	checkInNoFile(t, dir, erased)

	s = startService(t, dir)
	s.mustReach(s.publish(w.Envelopes(20), map[string]string{"user1": "other1"}))
	s.stop()
}

// checkInNoFile checks that no file in a directory contains the id of one of the users.
func checkInNoFile(t *testing.T, dir string, users []string) {
	t.Helper()
	for _, user := range users {
		if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
			t.Errorf("got the files %v with the id %s, expected none", found, user)
		}
	}
}

// Many users are erased in one pass: the log begins a single epoch. Stores build only partitions to
// which events about them were delivered, and no row of another user changes. The report names a
// user who is not in the log by the place in the list.
func TestManyUsersAreErasedInOnePass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startService(t, dir)
	w := memlog.NewWorld(11, 30)
	s.mustReach(s.publish(w.Envelopes(300), erasedNames))
	for _, l := range s.o.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	res, err := s.o.Publisher.Publish(t.Context(), deletions(erased), eventlog.PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := s.waitForRows(res.Position.Seq)

	r, err := Erase(t.Context(), s.o, append([]string{"nobody"}, erased...), nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Users != 3 || r.Epoch != 2 {
		t.Errorf("got %d erased users in epoch %d, expected 3 in epoch 2", r.Users, r.Epoch)
	}
	if diff := cmp.Diff([]int{1}, r.Unknown); diff != "" {
		t.Errorf("numbers of unknown users (-want +got):\n%s", diff)
	}
	for i, rows := range s.waitForRows(r.Head) {
		withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s after the erasure", s.o.Stores[i].Name())
	}

	// The store seen has rows at the homes of users alone, so it builds only their partitions.
	var homes events.Partitions
	for _, user := range erased {
		homes.AddHome(user)
	}
	wantLine := fmt.Sprintf("seen: %d of 256 partitions were built from the log; the others have the same rows as before, which were copied",
		homes.Len())
	for _, want := range []string{wantLine, "user 1 of the list was not erased", "there are no replicas, and so no Raft logs"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("got the report\n%s\nexpected %q in it", r, want)
		}
	}

	s.mustReach(s.publish(w.Envelopes(20), map[string]string{"user1": "other1", "user2": "other2", "user3": "other3"}))
	s.stop()
	checkInNoFile(t, dir, erased)
}

// If an erasure ended before the stores were built anew, the next one cleans up after it, even if
// the next one is about another user. The log only names the partitions of the last erasure, so the
// next one builds all partitions from the log and copies none.
func TestNextErasureCleansUpAfterFailedOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startService(t, dir)
	s.mustReach(s.publish(memlog.NewWorld(12, 20).Envelopes(100), erasedNames))
	for _, l := range s.o.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}

	// The first erasure fails in the new epoch, when it begins to build stores.
	fault := errors.New("no log today")
	subscribe := s.o.Subscribe
	s.o.Subscribe = func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		if s.o.Log.Epoch() > 1 {
			return nil, fault
		}
		return subscribe(from, kinds)
	}
	if _, err := Erase(t.Context(), s.o, erased[:1], nil); !errors.Is(err, fault) {
		t.Fatalf("got %v, expected %v", err, fault)
	}
	s.stop()

	s = startService(t, dir)
	r, err := Erase(t.Context(), s.o, erased[1:2], nil)
	if err != nil {
		t.Fatal(err)
	}
	const copiedRows = "which were copied"
	if strings.Contains(r.String(), copiedRows) {
		t.Errorf("got the report\n%s\nexpected no %q in it", r, copiedRows)
	}
	s.stop()
	checkInNoFile(t, filepath.Join(dir, "stores"), erased[:2])
}

// An id that no event names, for example because it is misspelled, changes nothing. The id of a
// user who was erased before is known.
func TestUnknownUserIsNotErased(t *testing.T) {
	t.Parallel()
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	checkUnknown := func(user string) {
		t.Helper()
		before, err := s.o.Log.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		if _, err := Erase(t.Context(), s.o, []string{user}, nil); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("erasure of %s: got %v, expected %v", user, err, ErrUnknownUser)
		}

		after, err := s.o.Log.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("erasure of %s: the head of the log changed (-before +after):\n%s", user, diff)
		}
		if epoch := s.o.Log.Epoch(); epoch != 1 {
			t.Errorf("erasure of %s: got epoch %d, expected 1", user, epoch)
		}
	}

	checkUnknown("somebody")
	s.mustReach(s.publish(memlog.NewWorld(1, 30).Envelopes(20), map[string]string{"user1": "somebody"}))
	checkUnknown("somebodi")
	for range 2 {
		if _, err := Erase(t.Context(), s.o, []string{"somebody"}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A user whom only a reject names is known, but a mistyped id that is a part of the id in the
// reject is not.
func TestPartOfIDInRejectIsUnknown(t *testing.T) {
	t.Parallel()
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()

	// The second event reuses the event id of the first one for something else, so it is a reject.
	var position events.Position
	for _, target := range []string{"bob", "somebody"} {
		res, err := s.o.Publisher.Publish(t.Context(), []*skeinv1.Event{{
			EventId: "reused", Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{UserId: "ann", TargetUserId: target}},
		}}, eventlog.PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}
		position = res.Position
	}
	s.waitForRows(position.Seq)

	for _, part := range []string{"some", "body", "omebod"} {
		if _, err := Erase(t.Context(), s.o, []string{part}, nil); !errors.Is(err, ErrUnknownUser) {
			t.Errorf("erasure of %s: got %v, expected %v", part, err, ErrUnknownUser)
		}
	}
	r, err := Erase(t.Context(), s.o, []string{"somebody"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Scrubbed.Rejects != 1 {
		t.Errorf("got %d scrubbed rejects, expected 1", r.Scrubbed.Rejects)
	}
}

func TestContainsWholeID(t *testing.T) {
	for _, c := range []struct {
		name, data, id string
		want           bool
	}{
		{"JSON", `{"userId":"zoe"}`, "zoe", true},
		{"part of an id in JSON", `{"userId":"zoe"}`, "zo", false},
		{"words", "zoe follows ann", "zoe", true},
		{"end of the data", "of zoe", "zoe", true},
		{"columns", "ann,zoe,bob", "zoe", true},
		{"encoded field before another one", "\n\x03zoe2\x01b", "zoe", true},
		{"part of an encoded field", "\n\x03zoe2\x01b", "oe", false},
		{"long encoded id", "\n\x80\x01" + strings.Repeat("é", 64) + "b", strings.Repeat("é", 64), true},
		{"part of an id in other characters", "zoé", "zo", false},
		{"part of an id with a separator", "zoe@example.com", "zoe", false},
		{"after a longer id", "zoes zoe", "zoe", true},
		{"missing", "ann", "zoe", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := containsWholeID([]byte(c.data), c.id); got != c.want {
				t.Errorf("%q in %q: got %v, expected %v", c.id, c.data, got, c.want)
			}
		})
	}
}

// No caller that publishes, reads or waits gets an error, and no acknowledged event is missing.
func TestErasureDisturbsNoCaller(t *testing.T) {
	t.Parallel()
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.mustReach(s.publish(memlog.NewWorld(2, 20).Envelopes(100), nil))
	sub, err := s.hub.Subscribe(s.o.Log.Start())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()

	// Publish and wait for the stores during the erasures.
	stop := make(chan struct{})
	lastPublished := make(chan uint64)
	go func() {
		w := memlog.NewWorld(3, 20)
		last := uint64(0)
		for {
			select {
			case <-stop:
				lastPublished <- last
				return
			default:
				last = max(last, s.publish(w.Envelopes(1), map[string]string{"user1": "someone1", "user4": "someone4"}))

				// If the publisher were faster than the stores fold, the previous generations would
				// never end.
				if err := s.waitForSeq(last); err != nil {
					t.Errorf("wait for sequence %d during the erasures: got %v, expected no error", last, err)
				}
			}
		}
	}()

	for _, user := range []string{"user1", "user4"} {
		r, err := Erase(t.Context(), s.o, []string{user}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
	}

	close(stop)
	last := <-lastPublished
	rows := s.waitForRows(last)

	// Read the whole log through a subscription from before the erasures.
	var envs []*events.Envelope
	for wantSeq := uint64(1); wantSeq <= last; {
		batch, err := sub.Next(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, env := range batch {
			if env.Seq() != wantSeq {
				t.Fatalf("read the log through the erasures: got sequence %d, expected %d", env.Seq(), wantSeq)
			}
			wantSeq++
		}
		envs = append(envs, batch...)
	}

	// The subscription has read some of the log before it was scrubbed, and some of it afterwards.
	// The rows must be the same.
	for i, p := range all.All(smallSettings()) {
		rows[i].MustEqual(t, conformance.Straight(t, p, envs).Own(), "%s", p.Name())
	}
}

// If the archive cannot keep up, the log continues in its epoch. A log that a crash has left paused
// continues when it is opened.
func TestFailedErasureKeepsTheEpoch(t *testing.T) {
	dir := t.TempDir()
	s := startService(t, dir)
	s.publish(memlog.NewWorld(4, 20).Envelopes(10), nil)

	fault := errors.New("no archive today")
	failToArchive := func(context.Context, uint64) (events.Cursor, error) { return events.Cursor{}, fault }
	_, err := s.o.Log.NextEpoch(t.Context(), 0, nil, failToArchive)
	if !errors.Is(err, eventlog.ErrEpochNotBegun) || !errors.Is(err, fault) {
		t.Errorf("got %v, expected %v because of %v", err, eventlog.ErrEpochNotBegun, fault)
	}
	if epoch := s.o.Log.Epoch(); epoch != 1 {
		t.Errorf("got epoch %d, expected 1", epoch)
	}

	// The log accepts events again.
	s.mustReach(s.publish(memlog.NewWorld(5, 20).Envelopes(10), nil))
	s.stop()
}
