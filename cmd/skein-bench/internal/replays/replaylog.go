package replays

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/stores"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// eventsPerEnvelope is how many events an envelope has in the logs of this package. An envelope
	// is a group of events that the log writes together.
	eventsPerEnvelope = 100
	// segmentBytes is how many bytes of the stream go into a segment of the archive, as many as in
	// a service.
	segmentBytes = 64 << 20
)

// replayLog is the log of one projection, in a stream and in an archive.
type replayLog struct {
	projection string
	// eventText names an event in the title of the row of bytes, mixText says which events there
	// are, and redisText says what Redis does.
	eventText, mixText, redisText string
	events                        iter.Seq[*skeinv1.Event]
	// follows is the graph whose follows are the events. It is nil if there are other events too.
	// Only follows are also measured with Redis.
	follows *workload.Graph
	// threshold is the number of followers from which on the projection inbox does not push the
	// pins of a user.
	threshold int64
	// targetRate is how many events per second a rebuild should reach, and targetBytes the largest
	// size of an event in the archive; 0 means that there is no target.
	targetRate, targetBytes float64

	// dir has the log. makeLog sets the fields that follow.
	dir                       string
	eventCount                int
	archiveBytes, streamBytes uint64
}

// replayLogs returns the logs of all projections, which are not made yet.
func replayLogs(b *measure.Bench) []*replayLog {
	n := b.Opts.Replayed
	users := max(100, n/10)
	// With few users, the threshold of a service would never be reached.
	threshold := min(inbox.DefaultSettings().Threshold, int64(users/10/events.NumPartitions))
	g := workload.NewGraph(users, n, 31)
	return []*replayLog{
		{
			projection: "graph", eventText: "a follow", mixText: "follows", follows: g, events: g.FollowEvents(), threshold: threshold,
			redisText: "Redis: the time that it says it took to load an append-only file of the same follows, each a MULTI … EXEC " +
				"with two ZADD and two HINCRBY, never rewritten.",
			targetRate: 1_500_000, targetBytes: 20,
		},
		{projection: "inbox", eventText: "a follow or pin", mixText: "follows and pins", events: stores.FeedEvents(n), threshold: threshold},
		{
			projection: "seen", eventText: "a play", mixText: "plays", threshold: threshold, targetRate: 1_500_000, targetBytes: 12,
			events: stores.PlayEvents(n, max(1, n/20), 31),
		},
		{
			projection: "counters", eventText: "an event of all kinds", mixText: "plays (a half), likes, follows and pins", events: countedEvents(n),
			threshold: threshold, targetRate: 300_000,
		},
	}
}

// countedEvents returns n events that the projection counters reads. Of ten of them, five are
// plays, two likes, two follows and one is a pin.
func countedEvents(n int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		r := rand.New(rand.NewPCG(37, 0))
		users := max(100, n/10)
		items := max(100, n/4)
		for i := range n {
			user := uint32(r.IntN(users))
			item := strconv.Itoa(workload.FirstID + workload.PowerLaw(r, items, workload.PlaySkew))
			ev := &skeinv1.Event{}
			switch i % 10 {
			case 0:
				ev = workload.PinCreated(workload.UserID(user), strconv.Itoa(workload.FirstID+i))
			case 1, 2:
				ev.Kind = &skeinv1.Event_Reacted{Reacted: &skeinv1.Reacted{UserId: workload.UserID(user), ItemId: item}}
			case 3, 4:
				followee := (int(user) + 1 + workload.PowerLaw(r, users-1, workload.FolloweeSkew)) % users
				ev = workload.UserFollowed(user, workload.UserID(uint32(followee)))
			default:
				ev.Kind = &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: workload.UserID(user), ItemId: item}}
			}
			if !yield(ev) {
				return
			}
		}
	}
}

// logDir is the directory of the stream, and archiveDir that of the archive.
func (l *replayLog) logDir() string     { return filepath.Join(l.dir, "log") }
func (l *replayLog) archiveDir() string { return filepath.Join(l.dir, "archive") }

// makeLog publishes the events into a new log, and archives all of them.
func makeLog(ctx context.Context, b *measure.Bench, l *replayLog) (err error) {
	b.Logf("a log of %s", l.mixText)
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: l.logDir()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, workload.CloseLog(ctx, log)) }()

	lastSeq, err := l.publish(ctx, log)
	if err != nil {
		return err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return err
	}
	l.streamBytes = uint64(head.Bytes)

	info, err := l.archive(ctx, log, lastSeq)
	for _, c := range info.Classes {
		l.archiveBytes += c.Bytes
	}
	return err
}

// publish publishes the events, and returns the sequence of the last envelope.
func (l *replayLog) publish(ctx context.Context, log *eventlog.Log) (lastSeq uint64, err error) {
	p, err := log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // the publisher lives until it is closed
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()

	// Nothing else is published meanwhile, so the events of a call become an envelope.
	var call []*skeinv1.Event
	publishCall := func() error {
		if len(call) == 0 {
			return nil
		}
		res, err := p.Publish(ctx, call, eventlog.PublishOptions{})
		lastSeq = res.Position.Seq
		call = nil
		return err
	}
	for ev := range l.events {
		l.eventCount++
		call = append(call, ev)
		if len(call) == eventsPerEnvelope {
			if err := publishCall(); err != nil {
				return 0, err
			}
		}
	}
	err = publishCall()
	return lastSeq, err
}

// archive archives the log up to the envelope with the sequence lastSeq.
func (l *replayLog) archive(ctx context.Context, log *eventlog.Log, lastSeq uint64) (info archive.Info, err error) {
	target, err := bucket.NewDir(l.archiveDir())
	if err != nil {
		return info, err
	}
	a, err := archive.Open(ctx, target, log.ID())
	if err != nil {
		return info, err
	}

	stream, err := subscribeFromStart(ctx, log)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, stream.stop()) }()
	for a.End().Seq < lastSeq {
		w := a.Writer()
		segment := 0 // bytes of the envelopes in this segment
		for segment < segmentBytes && w.End().Seq < lastSeq {
			envs, err := stream.Next(ctx, 1<<20)
			if err != nil {
				return info, err
			}
			if err := w.Add(envs...); err != nil {
				return info, err
			}
			for _, env := range envs {
				segment += env.Bytes
			}
		}
		if _, err := w.Seal(ctx); err != nil {
			return info, err
		}
	}
	return a.Info(), nil
}

// streamSubscription reads a log from its start, through a hub that nothing else uses.
type streamSubscription struct {
	workload.HubSubscription
	cancel context.CancelFunc
	// hubErr gets the error of the hub, or nil, when the hub has ended.
	hubErr chan error
}

// subscribeFromStart starts a hub and subscribes to the log from its start.
func subscribeFromStart(ctx context.Context, log *eventlog.Log) (*streamSubscription, error) {
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	ctx, cancel := context.WithCancel(ctx)
	s := &streamSubscription{cancel: cancel, hubErr: make(chan error, 1)}
	go func() { s.hubErr <- hub.Run(ctx) }()

	subscription, err := hub.Subscribe(log.Start())
	if err != nil {
		cancel()
		return nil, errors.Join(err, <-s.hubErr)
	}
	s.HubSubscription = workload.HubSubscription{Subscription: subscription, Hub: hub}
	return s, nil
}

// stop ends the subscription and the hub.
func (s *streamSubscription) stop() error {
	s.Close()
	s.cancel()
	return <-s.hubErr
}
