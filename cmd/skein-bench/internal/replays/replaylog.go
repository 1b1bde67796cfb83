package replays

import (
	"context"
	"errors"
	"fmt"
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
	// eventsPerEnvelope is how many events are in an envelope of a log that is replayed.
	eventsPerEnvelope = 100
	// segmentBytes of the stream go into one segment, as where archiving is on.
	segmentBytes = 64 << 20
)

// replayLog is a log, in a stream and in an archive, of events that one projection reads.
type replayLog struct {
	projection string
	// what is the event whose bytes count, mix says in words which events there are, peer what they are held against.
	eventText, mixText, redisText string
	events                        iter.Seq[*skeinv1.Event]
	// follows are the events, where they are all follows: what Redis is given too.
	follows *workload.Graph
	// threshold is that of inbox.
	threshold int64
	// rate and bytes are what must be reached; 0 means nothing need be.
	targetRate, targetBytes float64

	dir                       string
	eventCount                int
	archiveBytes, streamBytes uint64
}

// replayLogs are the logs that are measured with, one for each projection.
func replayLogs(b *measure.Bench) []*replayLog {
	n := b.Opts.Replayed
	users := max(100, n/10)
	threshold := min(inbox.DefaultSettings().Threshold, int64(users/10/events.NumPartitions))
	g := workload.NewGraph(users, n, 31)
	return []*replayLog{
		{
			projection: "graph", eventText: "a follow", mixText: "follows", follows: g, events: g.FollowEvents(), threshold: threshold,
			redisText: "Redis: the time that it says it took to load an append-only file of the same follows, each a MULTI … EXEC " +
				"with two ZADD and two HINCRBY, never rewritten.",
			targetRate: 1_500_000, targetBytes: 20,
		},
		{projection: "inbox", eventText: "a follow or pin", mixText: "follows and pins", events: stores.HomeEvents(n), threshold: threshold},
		{
			projection: "seen", eventText: "a play", mixText: "plays", threshold: threshold, targetRate: 1_500_000, targetBytes: 12,
			events: stores.PlayEvents(n, max(1, n/20), 31),
		},
		{
			projection: "counters", eventText: "an event of all kinds", mixText: "plays (a half), likes, follows and pins", events: countedEvents(n, n),
			threshold: threshold, targetRate: 300_000,
		},
	}
}

// countedEvents are n events that are counted, of as many users and items as size events have: of ten five are plays, two
// likes, two follows and one is a pin.
func countedEvents(n, size int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		r := rand.New(rand.NewPCG(37, 0))
		users, items := max(100, size/10), max(100, size/4)
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

func (l *replayLog) logDir() string     { return filepath.Join(l.dir, "log") }
func (l *replayLog) archiveDir() string { return filepath.Join(l.dir, "archive") }

// holds fails unless all events were read.
func (l *replayLog) checkEventCount(r replayResult) error {
	if r.Events != l.eventCount {
		return fmt.Errorf("%d events were read, not %d", r.Events, l.eventCount)
	}
	return nil
}

// makeLog publishes the events and archives all of them.
func makeLog(ctx context.Context, b *measure.Bench, l *replayLog) (err error) {
	b.Say("a log of %s", l.mixText)
	log, err := eventlog.Open(ctx, eventlog.Config{Dir: l.logDir()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, workload.CloseLog(ctx, log)) }()
	last, err := l.publish(ctx, log)
	if err != nil {
		return err
	}
	head, err := log.Head(ctx)
	if err != nil {
		return err
	}
	l.streamBytes = uint64(head.Bytes)
	info, err := l.archive(ctx, log, last)
	for _, c := range info.Classes {
		l.archiveBytes += c.Bytes
	}
	return err
}

// publish appends the events, and returns the last sequence.
func (l *replayLog) publish(ctx context.Context, log *eventlog.Log) (last uint64, err error) {
	p, err := log.NewPublisher(eventlog.PublisherOptions{}) //nolint:contextcheck // it lives until it is closed
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	var call []*skeinv1.Event
	flush := func() error {
		if len(call) == 0 {
			return nil
		}
		res, err := p.Publish(ctx, call, eventlog.PublishOptions{})
		last, call = res.Position.Seq, nil
		return err
	}
	for ev := range l.events {
		l.eventCount++
		if call = append(call, ev); len(call) == eventsPerEnvelope {
			if err := flush(); err != nil {
				return 0, err
			}
		}
	}
	return last, flush()
}

// archive archives the log up to its last envelope.
func (l *replayLog) archive(ctx context.Context, log *eventlog.Log, last uint64) (info archive.Info, err error) {
	target, err := bucket.NewDir(l.archiveDir())
	if err != nil {
		return info, err
	}
	a, err := archive.Open(ctx, target, log.ID())
	if err != nil {
		return info, err
	}
	reading, err := readStream(ctx, log)
	if err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, reading.stop()) }()
	for a.End().Seq < last {
		w := a.Writer()
		for raw := 0; raw < segmentBytes && w.End().Seq < last; {
			envs, err := reading.Next(ctx, 1<<20)
			if err != nil {
				return info, err
			}
			if err := w.Add(envs...); err != nil {
				return info, err
			}
			for _, env := range envs {
				raw += env.Bytes
			}
		}
		if _, err := w.Seal(ctx); err != nil {
			return info, err
		}
	}
	return a.Info(), nil
}

// streamReading is a reading of a log from its start, through a hub of its own.
type streamReading struct {
	workload.HubSubscription
	cancel context.CancelFunc
	ended  chan error
}

func readStream(ctx context.Context, log *eventlog.Log) (*streamReading, error) {
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	ctx, cancel := context.WithCancel(ctx)
	r := &streamReading{cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- hub.Run(ctx) }()
	sub, err := hub.Subscribe(log.Start())
	if err != nil {
		cancel()
		return nil, errors.Join(err, <-r.ended)
	}
	r.Reading = workload.HubSubscription{Subscription: sub, Hub: hub}
	return r, nil
}

func (r *streamReading) stop() error {
	r.Close()
	r.cancel()
	return <-r.ended
}
