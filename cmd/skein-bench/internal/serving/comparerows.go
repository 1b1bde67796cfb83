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
	// publishedTogether is how many events a call publishes in the rows of publishing.
	publishedTogether = 10
	// fanOutOwners are the most followed users, who pin in the row of the fan-out. fanOutReaders follow most, and have inboxes: few
	// enough to fit into the memory that a service has for inboxes by default.
	fanOutOwners, fanOutReaders = 100, 3000
	// fanOutShare is how many fewer pins than follows are published for a measurement, since each of them has many deliveries.
	fanOutShare = 20
)

// comparedProjections are those whose rebuilds are compared.
func comparedProjections() []string { return []string{"graph", "inbox", "seen", "counters"} }

// compareRebuilds times a rebuild of each projection in a service that answers, cut-over included.
func (c *comparison) compareRebuilds(ctx context.Context) error {
	for _, projection := range comparedProjections() {
		rebuild := func(ctx context.Context, s *comparedSide) (m measure.Measurement, err error) {
			r := &rebuilder{admin: skeinv1connect.NewAdminServiceClient(http.DefaultClient, "http://"+s.skein.Addr.String())}
			begin := time.Now()
			if err := r.begin(ctx, &skeinv1.StartRebuildRequest{Projection: projection}); err != nil {
				return m, err
			}
			end, err := r.wait(ctx)
			if err != nil {
				return m, err
			}
			if end.GetState() != skeinv1.OperationState_OPERATION_STATE_SUCCEEDED {
				return m, fmt.Errorf("the rebuild ended as %v: %s", end.GetState(), end.GetError())
			}
			return measure.Measurement{Value: time.Since(begin).Seconds()}, nil
		}
		if err := c.compareRow(ctx, "rebuild-"+projection, "rebuild of "+projection, "s", true, rebuild); err != nil {
			return err
		}
	}
	return nil
}

// comparedRead is a method whose calls are compared, in some encodings.
type comparedRead struct {
	id, title string
	encodings []programs.Encoding
}

func comparedReads() []comparedRead {
	return []comparedRead{
		{"check", "checks", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"filter", "filters of 25", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"followers", "lists of 50 followers", []programs.Encoding{programs.Protobuf(), programs.JSON()}},
		{"feed-newest", "feed pages of 20", []programs.Encoding{programs.Protobuf()}},
	}
}

// compareReads measures how many calls a second are answered when the next call follows the answer.
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

func (c *comparison) compareRead(ctx context.Context, read comparedRead, method readMethod, encoding programs.Encoding) error {
	calls := map[*comparedSide]*programs.EncodedCalls{}
	for _, s := range c.sides {
		var err error
		if calls[s], err = programs.EncodeCalls(s.skein.Addr, method.procedure, encoding, method.requests); err != nil {
			return err
		}
		if err := s.warm(ctx, method, calls[s], encoding); err != nil {
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

// warm makes every call once, so that the first round finds the caches as the others do. It fails if the answers are empty.
func (s *comparedSide) warm(ctx context.Context, method readMethod, calls *programs.EncodedCalls, encoding programs.Encoding) (err error) {
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

// compareFanOut measures deliveries a second from the first pin that is published until every projection shows the last one. The
// readers have inboxes: each has read a page since the last pins.
func (c *comparison) compareFanOut(ctx context.Context) error {
	g := c.world.graph
	owners, readers := min(fanOutOwners, g.Users), mostFollowing(g, min(fanOutReaders, g.Users))
	inboxes := make([]int, owners) // of the readers who follow the owner
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
			if err := s.readPages(ctx, pages); err != nil {
				return m, err
			}
			pins, deliveries := max(owners, c.Opts.Follows/fanOutShare), 0
			for i := range pins {
				deliveries += inboxes[i%owners]
			}
			sequences := dealCalls(groupIntoCalls(s.pins(pins, owners), ingestPipeline), ingestConnections)
			s.pinned += pins

			begin := time.Now()
			if err := s.skein.PublishSequences(ctx, sequences); err != nil {
				return m, err
			}
			return measure.Rate(deliveries, begin), nil
		})
}

// pins are n new pins, of some owners in turn.
func (s *comparedSide) pins(n, owners int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		for i := range n {
			if !yield(workload.PinCreated(workload.UserID(uint32(i%owners)), "fan-out-"+strconv.Itoa(s.pinned+i))) {
				return
			}
		}
	}
}

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

// comparePublishing measures how many events a second are on disk: until the last call is answered, not until reads show them.
func (c *comparison) comparePublishing(ctx context.Context) error {
	for _, encoding := range []programs.Encoding{programs.Protobuf(), programs.JSON()} {
		title := fmt.Sprintf("publishing in calls of %d, %s", publishedTogether, encoding.Name)
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

func (c *comparison) publish(ctx context.Context, s *comparedSide, encoding programs.Encoding) (m measure.Measurement, err error) {
	var requests []proto.Message
	for _, call := range groupIntoCalls(c.world.writtenEvents(s.written, c.Opts.Follows), publishedTogether) {
		requests = append(requests, call)
	}
	s.written += c.Opts.Follows
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
	m = measure.Rate(c.Opts.Follows, begin)

	// All of it must be accepted, and folded before the next measurement begins.
	accepted, last := 0, events.Position{}
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

// compareIngest measures follows and plays until every projection shows the last of them, each time from an empty service.
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
