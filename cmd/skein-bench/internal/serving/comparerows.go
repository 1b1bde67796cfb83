package serving

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

const (
	// eventsPerPublish is how many events a call publishes in the rows of publishing.
	eventsPerPublish = 10
	// fanOutOwners is how many users create pins in the row of the fan-out. They are the users with
	// most followers.
	fanOutOwners = 100
	// fanOutReaders is how many readers have inboxes in that row. They are the users who follow
	// most others. They are so few that their inboxes fit into the memory that a service has for
	// inboxes by default.
	fanOutReaders = 3000
	// fanOutDivisor is how many times fewer pins than follows a measurement publishes, because each
	// pin has many deliveries.
	fanOutDivisor = 20
)

// comparedProjections are those whose rebuilds are compared.
func comparedProjections() []string { return []string{"graph", "inbox", "seen", "counters"} }

// compareRebuilds times a rebuild of each projection in a running service, until the service
// answers from the new store.
func (c *comparison) compareRebuilds(ctx context.Context) error {
	for _, projection := range comparedProjections() {
		rebuild := func(ctx context.Context, s *comparedSide) (m measure.Measurement, err error) {
			r := &rebuilder{admin: skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.skein.Addr.String())}
			begin := time.Now()
			if err := r.startRebuild(ctx, &skeinv1.StartRebuildRequest{Projection: projection}); err != nil {
				return m, err
			}
			operation, err := r.waitForEnd(ctx)
			if err != nil {
				return m, err
			}
			if operation.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED {
				return m, fmt.Errorf("the rebuild ended as %v: %s", operation.GetState(), operation.GetError())
			}
			return measure.Measurement{Value: time.Since(begin).Seconds()}, nil
		}
		if err := c.compareRow(ctx, "rebuild-"+projection, "rebuild of "+projection, "s", true, rebuild); err != nil {
			return err
		}
	}
	return nil
}

// comparedRead is a method whose calls are compared, in one or several encodings.
type comparedRead struct {
	id, title string
	encodings []programs.Encoding
}

// comparedReads returns the methods that are compared.
func comparedReads() []comparedRead {
	return []comparedRead{
		{"check", "checks", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"filter", "filters of 25", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"followers", "lists of 50 followers", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"feed-newest", "feed pages of 20", []programs.Encoding{programs.Protobuf()}},
	}
}

// compareReads measures how many calls per second are answered if each connection sends the next
// call after the answer.
func (c *comparison) compareReads(ctx context.Context) error {
	r := rand.New(rand.NewPCG(59, 0))
	methods := slices.Concat(c.world.graphMethods(r), c.world.listMethods(r), c.world.feedMethods(r))
	for _, read := range comparedReads() {
		i := slices.IndexFunc(methods, func(m readMethod) bool { return m.id == read.id })
		if i < 0 {
			return fmt.Errorf("no method is named %s", read.id)
		}
		for _, encoding := range read.encodings {
			if err := c.compareRead(ctx, read, methods[i], encoding); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareRead measures one method in one encoding.
func (c *comparison) compareRead(ctx context.Context, read comparedRead, method readMethod, encoding programs.Encoding) error {
	calls := map[*comparedSide]*programs.EncodedCalls{}
	for _, s := range c.sides {
		var err error
		calls[s], err = programs.EncodeCalls(s.skein.Addr, method.procedure, encoding, method.requests)
		if err != nil {
			return err
		}
		if err := s.warmCaches(ctx, method, calls[s], encoding); err != nil {
			return fmt.Errorf("%s: %s: %w", method.title, s.name, err)
		}
	}

	title := read.title + ", " + encoding.Name
	return c.compareRow(ctx, read.id+"-"+encoding.Name, title, "calls/s", false,
		func(ctx context.Context, s *comparedSide) (m measure.Measurement, err error) {
			conns, err := programs.DialCallConns(ctx, s.skein.Addr, connections)
			if err != nil {
				return m, err
			}
			defer func() { err = errors.Join(err, conns.Close()) }()

			m.Value, err = measure.ClosedLoop(ctx, c.Opts.Time, len(conns), func(_ context.Context, worker, i int) error {
				return conns[worker].Call(calls[s], i, "", nil)
			})
			return m, err
		})
}

// warmCaches makes every call once, so that caches are as full in the first round as in the others.
// It returns an error if all answers are empty.
func (s *comparedSide) warmCaches(ctx context.Context, method readMethod, calls *programs.EncodedCalls, encoding programs.Encoding) (err error) {
	conns, err := programs.DialCallConns(ctx, s.skein.Addr, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conns.Close()) }()

	answers, err := conns.CallAll(calls)
	if err != nil {
		return err
	}
	total := 0
	for _, body := range answers {
		answer := method.answer.ProtoReflect().New().Interface()
		if err := encoding.Unmarshal(body, answer); err != nil {
			return err
		}
		total += countEntries(answer)
	}
	if total == 0 {
		return errors.New("all answers are empty")
	}
	return nil
}

// compareFanOut measures how many pins per second are delivered to inboxes, from the first call
// that publishes a pin until every projection shows the last pin. Each reader has an inbox, because
// it has read a page of its feed since the pins before.
func (c *comparison) compareFanOut(ctx context.Context) error {
	g := c.world.graph
	owners := min(fanOutOwners, g.Users)
	readers := mostFollowing(g, min(fanOutReaders, g.Users))
	inboxes := make([]int, owners) // how many of the readers follow each owner
	for _, reader := range readers {
		for owner := range inboxes {
			if g.Follows(reader, uint32(owner)) {
				inboxes[owner]++
			}
		}
	}
	pages := make([]proto.Message, len(readers))
	for i, reader := range readers {
		pages[i] = &skeinv1.ReadFeedRequest{ReaderId: workload.UserID(reader), PageSize: feedPageSize}
	}

	return c.compareRow(ctx, "fan-out", fmt.Sprintf("fan-out until visible, %d readers", len(readers)), "deliveries/s", false,
		func(ctx context.Context, s *comparedSide) (m measure.Measurement, err error) {
			// A reader without an inbox would get no deliveries.
			if err := s.readPages(ctx, pages); err != nil {
				return m, err
			}
			pins := max(owners, c.Opts.Follows/fanOutDivisor)
			deliveries := 0
			for i := range pins {
				deliveries += inboxes[i%owners]
			}
			sequences := dealCalls(groupIntoCalls(s.newPinEvents(pins, owners), ingestPipeline), ingestConnections)
			s.pinned += pins // the pins of the next measurement get new ids

			begin := time.Now()
			if err := s.skein.PublishSequences(ctx, sequences); err != nil {
				return m, err
			}
			return measure.RateSince(deliveries, begin), nil
		})
}

// newPinEvents creates n new pins, of the first users in turn.
func (s *comparedSide) newPinEvents(n, owners int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range n {
			if !yield(workload.PinCreated(workload.UserID(uint32(i%owners)), "fan-out-"+strconv.Itoa(s.pinned+i))) {
				return
			}
		}
	}
}

// readPages makes each of the calls of ReadFeed once.
func (s *comparedSide) readPages(ctx context.Context, pages []proto.Message) (err error) {
	calls, err := programs.EncodeCalls(s.skein.Addr, skeinv1connect.FeedServiceReadFeedProcedure, programs.Protobuf(), pages)
	if err != nil {
		return err
	}
	conns, err := programs.DialCallConns(ctx, s.skein.Addr, connections)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conns.Close()) }()

	_, err = conns.CallAll(calls)
	return err
}

// comparePublishing measures how many events per second are on disk: until the last call is
// answered, which may be before reads show the event.
func (c *comparison) comparePublishing(ctx context.Context) error {
	for _, encoding := range []programs.Encoding{programs.Protobuf(), programs.JSON()} {
		title := fmt.Sprintf("publishing in calls of %d, %s", eventsPerPublish, encoding.Name)
		err := c.compareRow(ctx, "publish-"+encoding.Name, title, "events/s", false,
			func(ctx context.Context, s *comparedSide) (measure.Measurement, error) {
				return c.publish(ctx, s, encoding)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// publish publishes new events over many connections, and then waits until reads show all of them.
func (c *comparison) publish(ctx context.Context, s *comparedSide, encoding programs.Encoding) (m measure.Measurement, err error) {
	var requests []proto.Message
	for _, call := range groupIntoCalls(c.world.writtenEvents(s.written, c.Opts.Follows), eventsPerPublish) {
		requests = append(requests, call)
	}
	s.written += c.Opts.Follows // the next measurement publishes other events

	calls, err := programs.EncodeCalls(s.skein.Addr, skeinv1connect.EventServicePublishProcedure, encoding, requests)
	if err != nil {
		return m, err
	}
	conns, err := programs.DialCallConns(ctx, s.skein.Addr, connections)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, conns.Close()) }()

	begin := time.Now()
	answers, err := conns.CallAll(calls)
	if err != nil {
		return m, err
	}
	m = measure.RateSince(c.Opts.Follows, begin)

	// All events must be accepted, and all stores must have them before the next measurement
	// begins.
	accepted := 0
	var last events.Position
	for _, body := range answers {
		var answer skeinv1.PublishResponse
		if err := encoding.Unmarshal(body, &answer); err != nil {
			return m, err
		}
		position, err := events.ParsePosition(answer.GetPosition())
		if err != nil {
			return m, err
		}
		accepted += int(answer.GetAcceptedCount())
		if position.Seq > last.Seq {
			last = position
		}
	}
	if accepted != c.Opts.Follows {
		return m, fmt.Errorf("%d of %d events were accepted", accepted, c.Opts.Follows)
	}
	return m, s.skein.WaitUntilVisible(ctx, last)
}

// compareIngest measures how many follows and plays per second are published, until every
// projection shows the last one. Each measurement starts an empty service.
func (c *comparison) compareIngest(ctx context.Context) error {
	g := workload.NewGraph(max(100, c.Opts.Follows/10), c.Opts.Follows, 4)
	follows := followCalls(g)
	err := c.compareRow(ctx, "follows", "follows until visible", "follows/s", false,
		func(ctx context.Context, s *comparedSide) (measure.Measurement, error) {
			return ingestSkein(ctx, s.bench, follows, len(g.Edges))
		})
	if err != nil {
		return err
	}

	plays := playCalls(c.Opts.Plays, max(100, c.Opts.Plays/20), c.Opts.Items)
	return c.compareRow(ctx, "plays", "plays until visible", "plays/s", false,
		func(ctx context.Context, s *comparedSide) (measure.Measurement, error) {
			return ingestSkein(ctx, s.bench, plays, c.Opts.Plays)
		})
}
