package stores

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/querycache"
)

// maxBadge is the number up to which unseen groups are counted, as the service does.
const maxBadge = 100

// notificationsSize says how much of notifications is measured.
type notificationsSize struct {
	// recipients is the number of users who receive the notifications that are folded, and folded
	// the number of notifications of each measurement.
	recipients, folded int
	// usersOfClass is how many users of each class read pages.
	usersOfClass int
}

// MeasureNotifications measures notifications that are folded, the badge, and pages of groups.
func MeasureNotifications(ctx context.Context, b *measure.Bench) error {
	size := notificationsSize{recipients: b.Opts.Readers, folded: b.Opts.Plays / 4, usersOfClass: 50}
	if b.Opts.Quick {
		size.usersOfClass = 4
	}
	if err := measureNotificationFold(ctx, b, size); err != nil {
		return err
	}
	return measureNotificationReads(ctx, b, size)
}

// openNotificationStore opens an empty store of notifications.
func openNotificationStore(b *measure.Bench) (*workload.BenchStore, error) {
	return workload.OpenStore(b.Dir, monthStart(0), func() projections.Projection {
		return notifications.New(notifications.DefaultSettings())
	})
}

// redisSortedSets is the name of the series of Redis.
const redisSortedSets = "redis sorted sets"

// measureNotificationFold measures what a notification costs, and the bytes that it takes.
func measureNotificationFold(ctx context.Context, b *measure.Bench, size notificationsSize) (err error) {
	runs, err := notificationRuns(min(b.Opts.Runs, maxLongRuns), size.folded, size.recipients)
	if err != nil {
		return err
	}
	f, err := openNotificationStore(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.Everysec)
	if err != nil {
		return err
	}
	s := notificationsRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()

	if err := measureNotificationFoldRows(ctx, b, f, s, runs, size); err != nil {
		return err
	}
	kept := keptNotifications(runs)
	if err := checkKept(ctx, f, s, kept, size.recipients); err != nil {
		return err
	}

	// A notification counts if its recipient can read it. Skein has up to a quarter more of those
	// who received more than are kept.
	count := 0
	for _, list := range kept {
		count += len(list)
	}
	const onDisk, inMemory = "skein on disk, compacted", redisSortedSets + " in memory"
	row := b.AddRow("notifications-bytes", "bytes a notification", "bytes", "after the notifications above, of those that their recipients "+
		"can read. skein: the directory of the store of notifications. Redis: used_memory, less that of an empty server.")
	bytes, err := f.CompactedBytes(ctx)
	if err != nil {
		return err
	}
	row.SeriesOf(onDisk).Add(measure.Measurement{Value: float64(bytes) / float64(count)})
	memory, err := s.Memory(ctx)
	if err != nil {
		return err
	}
	row.SeriesOf(inMemory).Add(measure.Measurement{Value: memory / float64(count)})
	row.Compare(onDisk, inMemory, 0, true)
	b.Logf("  %-18s %s bytes, redis %s", row.ID, measure.FormatFigure(row.SeriesOf(onDisk).Median), measure.FormatFigure(row.SeriesOf(inMemory).Median))
	return nil
}

// measureNotificationFoldRows measures the fold of runs of notifications in two rows: by time, and
// by processor time.
func measureNotificationFoldRows(
	ctx context.Context, b *measure.Bench, f *workload.BenchStore, s notificationsRedis, runs [][]notification, size notificationsSize,
) error {
	row := b.AddRow("notifications-fold", "notifications folded", "notifications/s", fmt.Sprintf("%d notifications a run, for %d recipients "+
		"by a power law, a tenth of them re-pins and the others reactions; each run goes on where the one before ended. skein: decode "+
		"and fold envelopes of %d, %d together, until all are flushed, in the store of notifications alone. Redis: ZADD NX and "+
		"ZREMRANGEBYRANK in pipelines of %d over %d connections, encoded beforehand, AOF everysec, until the last reply. Both keep "+
		"%d of each kind. Unlike skein, Redis cannot find the notifications of an actor who is deleted.",
		size.folded, size.recipients, notificationsPerEnvelope, envelopesPerFold, writesPipelined, writeConnections, notificationsKept))
	core := b.AddRow("notifications-fold-core", "a notification folded, by processor time", "µs", "the same measurements, in time of one "+
		"core: of skein all threads, flushes, compactions and garbage collection included; of Redis the server alone, without the "+
		"program that sends.")
	// The report has the series in the order in which they were added. The contenders add them too,
	// but not always in this order.
	core.SeriesOf(measure.Skein)
	core.SeriesOf(redisSortedSets)

	fold := func(ctx context.Context, run []notification) (measure.Measurement, error) {
		log, err := encodeNotifications(run)
		if err != nil {
			return measure.Measurement{}, err
		}
		runtime.GC() // the fold should not pay for the garbage of the encoding

		watch, err := measure.StartStopwatch()
		if err != nil {
			return measure.Measurement{}, err
		}
		if err := foldEncoded(ctx, f, log); err != nil {
			return measure.Measurement{}, err
		}
		took, used := watch.Read()
		core.SeriesOf(measure.Skein).Add(measure.Measurement{Value: measure.Micros(used) / float64(len(run))})
		return measure.Measurement{Value: float64(len(run)) / took.Seconds()}, nil
	}
	write := func(ctx context.Context, run []notification) (measure.Measurement, error) {
		took, used, err := writePipelines(ctx, s.Redis, run, appendNotification, 2)
		core.SeriesOf(redisSortedSets).Add(measure.Measurement{Value: measure.Micros(used) / float64(len(run))})
		return measure.Measurement{Value: float64(len(run)) / took.Seconds()}, err
	}
	err := b.MeasureRunsInTurn(ctx, len(runs), row,
		measure.Contender{Name: measure.Skein, Measure: measureNextRun(runs, fold)},
		measure.Contender{Name: redisSortedSets, Measure: measureNextRun(runs, write)})
	if err != nil {
		return err
	}
	row.Compare(measure.Skein, redisSortedSets, 0, false)
	core.Compare(measure.Skein, "", 8, true)
	core.Compare(measure.Skein, redisSortedSets, 0, true)
	return nil
}

// listOfRecipient names the list of the notifications of a recipient and a kind.
type listOfRecipient struct {
	recipient uint32
	kind      notifications.Kind
}

// keptNotifications returns what each list has after all runs, newest first.
func keptNotifications(runs [][]notification) map[listOfRecipient][]listedNotification {
	kept := make(map[listOfRecipient][]listedNotification)
	// From the newest notification on, a list that is full needs no more.
	for _, run := range slices.Backward(runs) {
		for _, n := range slices.Backward(run) {
			name := listOfRecipient{n.recipient, n.kind}
			if list := kept[name]; len(list) < notificationsKept {
				kept[name] = append(list, n.asListed())
			}
		}
	}
	return kept
}

// checkKept returns an error unless the store and Redis have the expected notifications of some
// recipients: of those who received most, and of some others.
func checkKept(
	ctx context.Context, f *workload.BenchStore, s notificationsRedis, expected map[listOfRecipient][]listedNotification, recipients int,
) error {
	const checkedOfEach = 20
	for i := range uint32(2 * checkedOfEach) {
		recipient := i // by the power law the first users receive most
		if i >= checkedOfEach {
			recipient = uint32(recipients) - 1 - i
		}
		user := workload.UserID(recipient)
		for _, kind := range []notifications.Kind{notifications.Reacted, notifications.Repinned} {
			want := expected[listOfRecipient{recipient, kind}]
			inRedis, err := s.readList(ctx, user, kind)
			if err != nil {
				return err
			}
			if !slices.Equal(want, inRedis) {
				return fmt.Errorf("redis has %d notifications of kind %d of %s, not the %d expected ones", len(inRedis), kind, user, len(want))
			}
			inSkein, err := readNewestFromStore(f, user, kind)
			if err != nil {
				return err
			}
			if !slices.Equal(want, inSkein) {
				return fmt.Errorf("skein has %d notifications of kind %d of %s, not the %d expected ones", len(inSkein), kind, user, len(want))
			}
		}
	}
	return nil
}

// readNewestFromStore returns the notifications of a kind that the store has of a user.
func readNewestFromStore(f *workload.BenchStore, user string, kind notifications.Kind) (list []listedNotification, err error) {
	v, err := f.Store.View()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	stored, err := notifications.NewQueries(v, notifications.DefaultSettings()).Newest(user, kind)
	for i := range stored {
		n := &stored[i]
		list = append(list, listedNotification{kind: n.Kind, pin: n.Pin, actor: n.Actor, detail: detailOf(n), at: n.Since})
	}
	return list, err
}

// detailOf returns the kind of the reaction, or the re-pin.
func detailOf(n *notifications.Notification) string {
	switch n.Kind {
	case notifications.Reacted:
		return events.ReactionName(n.Reaction)
	case notifications.Repinned:
		return n.Repin
	}
	return ""
}

// notificationStores are the stores that answer about notifications.
type notificationStores struct{ notifications, inbox, graph *workload.BenchStore }

// openNotificationStores opens empty stores of all that an answer about notifications needs.
func openNotificationStores(b *measure.Bench) (s *notificationStores, err error) {
	s = &notificationStores{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeAndRemove())
		}
	}()
	if s.notifications, err = openNotificationStore(b); err != nil {
		return nil, err
	}
	cache := querycache.New(querycache.DefaultBytes)
	s.inbox, err = workload.OpenStore(b.Dir, monthStart(0), func() projections.Projection {
		return inbox.NewWith(inbox.DefaultSettings(), cache)
	})
	if err != nil {
		return nil, err
	}
	s.graph, err = workload.OpenStore(b.Dir, monthStart(0), func() projections.Projection { return graph.NewWith(cache) })
	return s, err
}

// closeAndRemove closes the stores that were opened, and removes their files.
func (s *notificationStores) closeAndRemove() (err error) {
	for _, f := range []*workload.BenchStore{s.notifications, s.inbox, s.graph} {
		if f != nil {
			err = errors.Join(err, f.CloseAndRemove())
		}
	}
	return err
}

// fold folds a log into all stores.
func (s *notificationStores) fold(ctx context.Context, log []encodedEnvelope) error {
	for _, f := range []*workload.BenchStore{s.notifications, s.inbox, s.graph} {
		if err := foldEncoded(ctx, f, log); err != nil {
			return err
		}
	}
	return nil
}

// notificationQueries are the queries over new views of the stores, as the service has them for a
// call.
type notificationQueries struct {
	*notifications.Queries
	inbox *inbox.Queries
	graph *graph.Queries
}

// query runs a query on new views of the stores, as the service does for each call.
func (s *notificationStores) query(run func(q *notificationQueries) error) (err error) {
	var views [3]*projections.View
	for i, f := range []*workload.BenchStore{s.notifications, s.inbox, s.graph} {
		if views[i], err = f.Store.View(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, views[i].Close()) }()
	}
	return run(&notificationQueries{
		Queries: notifications.NewQueries(views[0], notifications.DefaultSettings()),
		inbox:   inbox.CachedQuery(views[1]),
		graph:   graph.NewCachedQueries(views[2]),
	})
}

// Pin is part of [notifications.Sources], as are the next two.
func (q *notificationQueries) Pin(owner, id string) (notifications.Pin, bool, error) {
	p, lives, err := q.inbox.Pin(owner, id)
	return notifications.Pin{Item: p.Item, RepinOwner: p.RepinOwner, RepinPin: p.RepinPin}, lives, err
}

// Hides asks the graph.
func (q *notificationQueries) Hides(user, actor string) (bool, error) {
	relation, err := q.graph.Visibility(user, actor)
	return relation.Muted || relation.Blocked, err
}

// Followers asks the graph.
func (q *notificationQueries) Followers(
	ctx context.Context, user string, since events.Micros, n int,
) ([]notifications.Follower, error) {
	entries, _, err := q.graph.List(ctx, graph.List{Kind: graph.Followers, User: user}, graph.CursorBefore(since), n)
	followers := make([]notifications.Follower, 0, len(entries))
	for i := range entries {
		followers = append(followers, notifications.Follower{User: entries[i].User, Since: entries[i].Since})
	}
	return followers, err
}

// readPage returns the first page of the groups of a user with the user's markers, and whether
// there are more groups.
func (s *notificationStores) readPage(
	ctx context.Context, user string,
) (page []notifications.Group, markers notifications.Markers, more bool, err error) {
	err = s.query(func(q *notificationQueries) (err error) {
		var next notifications.PageCursor
		if page, next, err = q.Groups(ctx, q, user, nil, feedPageSize); err != nil {
			return err
		}
		more = next != nil
		markers, err = q.Markers(user)
		return err
	})
	return page, markers, more, err
}

// countUnseen returns the badge of a user.
func (s *notificationStores) countUnseen(ctx context.Context, user string) (count int, more bool, err error) {
	err = s.query(func(q *notificationQueries) error {
		seen, err := q.Seen(user)
		if err != nil {
			return err
		}
		count, more, err = q.CountUnseen(ctx, q, user, seen, maxBadge, func(string) {})
		return err
	})
	return count, more, err
}

// check returns an error unless the page and the badge of a user are as expected.
func (s *notificationStores) check(ctx context.Context, user string, expected []notificationGroup) error {
	found, markers, more, err := s.readPage(ctx, user)
	if err != nil {
		return err
	}
	page := make([]notificationGroup, len(found))
	for i := range found {
		g := &found[i]
		page[i] = notificationGroup{ID: g.ID(), Newest: g.Newest, ActorCount: g.ActorCount, Unread: markers.IsUnread(g)}
		for k := range g.Actors {
			n := &g.Actors[k]
			page[i].Actors = append(page[i].Actors, groupActor{n.Actor, detailOf(n), n.Since})
		}
	}
	count, moreUnseen, err := s.countUnseen(ctx, user)
	if err != nil {
		return err
	}
	return compareGroups("skein", user, expected, page, more, count, moreUnseen)
}

// check does the same for Redis.
func (s notificationsRedis) check(ctx context.Context, user string, expected []notificationGroup) error {
	page, more, err := s.readPage(ctx, user)
	if err != nil {
		return err
	}
	count, moreUnseen, err := s.countUnseen(ctx, user)
	if err != nil {
		return err
	}
	return compareGroups("redis", user, expected, page, more, count, moreUnseen)
}

// compareGroups returns an error unless a page and a badge are those of all groups of a user. The
// user has seen none of the groups.
func compareGroups(name, user string, all, page []notificationGroup, more bool, count int, moreUnseen bool) error {
	expected := all[:min(len(all), feedPageSize)]
	if diff := cmp.Diff(expected, page); diff != "" || more != (len(all) > feedPageSize) {
		return fmt.Errorf("%s: page of %s, of %d groups, more %t (-want +got):\n%s", name, user, len(all), more, diff)
	}
	if count != min(len(all), maxBadge) || moreUnseen != (len(all) > maxBadge) {
		return fmt.Errorf("%s counts %d unseen groups of %s, more %t, want %d", name, count, user, moreUnseen, len(all))
	}
	return nil
}

// measureNotificationReads measures the badge and pages of groups.
func measureNotificationReads(ctx context.Context, b *measure.Bench, size notificationsSize) (err error) {
	skein, err := openNotificationStores(b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, skein.closeAndRemove()) }()
	server, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return err
	}
	s := notificationsRedis{server}
	defer func() { err = errors.Join(err, s.Close()) }()

	b.Logf("folding and loading notifications that are read")
	classes := notifiedClasses(size.usersOfClass)
	log, err := encodeClasses(classes)
	if err != nil {
		return err
	}
	if err := skein.fold(ctx, log); err != nil {
		return err
	}
	for i := range classes {
		c := &classes[i]
		if err := s.load(ctx, c); err != nil {
			return err
		}
		for _, user := range c.users {
			id, expected := workload.UserID(user), c.expectedGroups(user)
			if err := errors.Join(skein.check(ctx, id, expected), s.check(ctx, id, expected)); err != nil {
				return err
			}
		}
	}

	badge := b.AddRow("notifications-badge", fmt.Sprintf("badge, all of %d notifications unseen, p99", notificationsPerUser), "µs", fmt.Sprintf(
		"in process, new views of the stores for each count, one goroutine; %d users in turn, each with %d notifications over 8 days: "+
			"5 %% follows, 20 %% re-pins and 75 %% reactions by %d actors, one in 25 of whom is muted or blocked, about %d pins, a tenth "+
			"of them deleted. Redis: go-redis, over the loopback; HGET of the marker, one pipeline of ZREVRANGEBYSCORE, and one of "+
			"SMISMEMBER and SISMEMBER of muted and blocked actors, of pins, and of each re-pin; grouped in the client.",
		size.usersOfClass, notificationsPerUser, actorsPerUser, pinsPerRecipient))
	countSkein := func(ctx context.Context, user string) error {
		_, _, err := skein.countUnseen(ctx, user)
		return err
	}
	countRedis := func(ctx context.Context, user string) error {
		_, _, err := s.countUnseen(ctx, user)
		return err
	}
	if err := compareReads(ctx, b, badge, &classes[0], countSkein, countRedis, 1000); err != nil {
		return err
	}

	for i := range classes {
		c := &classes[i]
		row := b.AddRow(c.id, fmt.Sprintf("page of %d groups, %d notifications %s, p99", feedPageSize, notificationsPerUser, c.title), "µs",
			fmt.Sprintf("%d groups in all; each answer has the markers, too. Skein reads whole days until the page is full. Redis: one "+
				"pipeline of ZREVRANGE of the newest %d of each kind and HGETALL of the markers, one of what is visible of the days that "+
				"were read completely, and both again for the rest if the page is not full.",
				len(c.expectedGroups(c.users[0])), firstNotifications))
		pageSkein := func(ctx context.Context, user string) error {
			_, _, _, err := skein.readPage(ctx, user)
			return err
		}
		pageRedis := func(ctx context.Context, user string) error {
			_, _, err := s.readPage(ctx, user)
			return err
		}
		if err := compareReads(ctx, b, row, c, pageSkein, pageRedis, 2000); err != nil {
			return err
		}
	}
	return nil
}

// compareReads measures reads of the users of a class, in turn. skein should take at most target
// microseconds at the 99th percentile.
func compareReads(
	ctx context.Context, b *measure.Bench, row *measure.Row, c *notifiedClass, skein, inRedis func(ctx context.Context, user string) error,
	target float64,
) error {
	users := make([]string, len(c.users))
	for i, user := range c.users {
		users[i] = workload.UserID(user)
	}
	prepare := func(string) error { return nil }
	err := b.MeasureInTurn(ctx, row,
		measure.Contender{Name: measure.Skein, Measure: timePages(b, users, prepare, skein)},
		measure.Contender{Name: redisSortedSets, Measure: timePages(b, users, prepare, inRedis)})
	if err != nil {
		return err
	}
	row.Compare(measure.Skein, "", target, true)
	row.Compare(measure.Skein, redisSortedSets, 0, true)
	return nil
}
