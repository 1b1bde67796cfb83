package streams

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/events/wait"
)

const (
	streamName = "BENCH"
	subject    = "bench.log"
	republish  = "bench.tail"
	// askTimeout bounds one question to the cluster.
	askTimeout = 5 * time.Second
)

// stream is a stream with three replicas, with the connections of its publishers.
type stream struct {
	servers *programs.NATS
	js      jetstream.JetStream
	conns   []*nats.Conn // one to each server
	unique  string
	sent    atomic.Uint64 // messages
	last    atomic.Uint64 // the greatest acknowledged sequence
}

// dial connects to a server, or to another when that one is gone. As in skein, nothing is kept while there is no connection.
func dial(servers *programs.NATS, first int, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(servers.URL(first), append([]nats.Option{
		nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.CustomReconnectDelay(func(tries int) time.Duration { return min(4*time.Millisecond<<min(tries, 8), time.Second) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // what readers drop shows as a gap
	}, more...)...)
}

// newStream creates an empty stream. If it is republished, replicas answer direct gets.
func newStream(ctx context.Context, servers *programs.NATS, republished bool) (s *stream, err error) {
	s = &stream{servers: servers, unique: strconv.FormatInt(time.Now().UnixNano(), 36)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for n := range programs.NATSServers {
		nc, err := dial(servers, n)
		if err != nil {
			return s, err
		}
		s.conns = append(s.conns, nc)
	}
	if s.js, err = jetstream.New(s.conns[0], jetstream.WithDefaultTimeout(askTimeout)); err != nil {
		return s, err
	}
	config := jetstream.StreamConfig{
		Name: streamName, Subjects: []string{subject}, Storage: jetstream.FileStorage, Replicas: programs.NATSServers,
		Discard: jetstream.DiscardNew, Duplicates: time.Minute,
	}
	if republished {
		config.AllowDirect, config.RePublish = true, &jetstream.RePublish{Source: subject, Destination: republish}
	}
	return s, ask(ctx, func(ctx context.Context) error {
		_, err := s.js.CreateStream(ctx, config) // one that exists, with this configuration, is no error
		return err
	})
}

// ask asks the cluster until it answers. While it elects a leader it drops requests.
func ask(ctx context.Context, question func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, time.Second)
		err := question(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		if err := wait.For(ctx, programs.PollInterval); err != nil { // no responders is said at once
			return err
		}
	}
}

func (s *stream) close() {
	for _, nc := range s.conns {
		nc.Close()
	}
}

func (s *stream) remove(ctx context.Context) error {
	defer s.close()
	err := ask(ctx, func(ctx context.Context) error { return s.js.DeleteStream(ctx, streamName) })
	if errors.Is(err, jetstream.ErrStreamNotFound) { // an earlier question was answered too late
		return nil
	}
	return err
}

// info returns what the cluster says about the stream.
func (s *stream) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	return info, ask(ctx, func(ctx context.Context) error {
		found, err := s.js.Stream(ctx, streamName)
		if err == nil {
			info = found.CachedInfo()
		}
		return err
	})
}

// leader returns the number of the server that leads the stream.
func (s *stream) leader(ctx context.Context) (int, error) {
	info, err := s.info(ctx)
	if err != nil {
		return 0, err
	}
	return s.servers.Number(info.Cluster.Leader)
}

// newBodies returns a random body for each publisher.
func newBodies(publishers int) [][]byte {
	bodies := make([][]byte, publishers)
	for i := range bodies {
		bodies[i] = make([]byte, messageBytes)
		_, _ = rand.Read(bodies[i]) // it never fails
	}
	return bodies
}

// message returns a new message, whose body begins with the time.
func (s *stream) message(body []byte) *nats.Msg {
	binary.BigEndian.PutUint64(body, uint64(time.Now().UnixNano()))
	return &nats.Msg{Subject: subject, Data: body, Header: nats.Header{
		nats.MsgIdHdr: []string{s.unique + strconv.FormatUint(s.sent.Add(1), 36)},
	}}
}

// sentAt is when a message was sent.
func sentAt(body []byte) time.Time { return time.Unix(0, int64(binary.BigEndian.Uint64(body))) }

// acknowledged returns the sequence that the stream has given to a message.
func (s *stream) acknowledged(reply *nats.Msg) (seq uint64, err error) {
	_, after, ok := strings.Cut(string(reply.Data), `"seq":`)
	digits, _, _ := strings.Cut(strings.TrimRight(after, " }"), ",")
	if seq, err = strconv.ParseUint(digits, 10, 64); !ok || err != nil || seq == 0 {
		return 0, fmt.Errorf("the stream did not take a message: %s", reply.Data)
	}
	for {
		last := s.last.Load()
		if seq <= last || s.last.CompareAndSwap(last, seq) {
			return seq, nil
		}
	}
}

// publish appends a body and returns when the cluster has acknowledged it. A server that has not yet heard of a new stream refuses it, and
// is asked again.
func (s *stream) publish(ctx context.Context, by int, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	msg := s.message(body)
	for {
		reply, err := s.conns[by%len(s.conns)].RequestMsgWithContext(ctx, msg)
		switch {
		case err == nil:
			_, err = s.acknowledged(reply)
			return err
		case !errors.Is(err, nats.ErrNoResponders) || wait.For(ctx, programs.PollInterval) != nil:
			return err
		}
	}
}

// insist sends a message every 50 ms, with the same id, until the cluster acknowledges it.
func (s *stream) insist(ctx context.Context, by int, body []byte) (uint64, error) {
	const again, refused = 50 * time.Millisecond, 10 * time.Millisecond
	nc, msg := s.conns[by%len(s.conns)], s.message(body)
	msg.Reply = nc.NewInbox()
	sub, err := nc.SubscribeSync(msg.Reply)
	if err != nil {
		return 0, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		_ = nc.PublishMsg(msg) // it fails while there is no connection
		if reply, err := sub.NextMsg(again); err == nil {
			if seq, err := s.acknowledged(reply); err == nil {
				return seq, nil
			}
		}
		if err := wait.For(ctx, refused); err != nil {
			return 0, err
		}
	}
}

// load is how a stream is written to: a number of publishes is always under way, or some messages a second at random moments.
type load struct {
	underWay int
	rate     float64
}

// publishFor publishes for a time, and returns how long the acknowledgements took.
func (s *stream) publishFor(ctx context.Context, d time.Duration, p load) (m measure.Measurement, err error) {
	bodies := newBodies(p.underWay)
	if p.rate > 0 {
		var loop measure.OpenLoop
		err := loop.Run(ctx, measure.Poisson(p.rate, d, 1), p.underWay, func(ctx context.Context, worker, _ int) error {
			return s.publish(ctx, worker, bodies[worker])
		})
		return measure.Measurement{P50: loop.Took.MS(50), P99: loop.Took.MS(99)}, err
	}
	took := make([][]float64, p.underWay)
	_, err = measure.ClosedLoop(ctx, d, p.underWay, func(ctx context.Context, worker, _ int) error {
		begin := time.Now()
		err := s.publish(ctx, worker, bodies[worker])
		took[worker] = append(took[worker], measure.Micros(time.Since(begin)))
		return err
	})
	if err != nil {
		return m, err
	}
	return measure.Latency(slices.Concat(took...)), nil
}

// way is how readers read a stream.
type way struct {
	name string
	// republished streams publish their messages again, for subscribers, and answer direct gets.
	republished bool
	// read delivers the messages after r.last, in order and without a gap, until the context ends.
	read func(ctx context.Context, r *reader)
}

// ways are what is compared.
var ways = [2]way{
	{name: "pull consumers", read: consume},
	{name: "republish and direct gets", republished: true, read: listen},
}

// reader is one node that reads the stream.
type reader struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	last uint64 // delivered
	got  func(seq uint64, body []byte)
	cut  chan struct{} // the connection was lost
	// ready is called whenever the reader gets what is published from now on.
	ready func()
	// at is last for others. Created counts the consumers, fetched the messages of direct gets.
	at, created, fetched atomic.Uint64
}

// deliver hands over a message.
func (r *reader) deliver(seq uint64, body []byte) {
	r.got(seq, body)
	r.last = seq
	r.at.Store(seq)
}

// readers run until they are closed.
type readers struct {
	all  []*reader
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// read starts readers, spread over the servers, and waits until each gets what is published from now on.
func (s *stream) read(ctx context.Context, w way, n int, got func(reader int, seq uint64, body []byte)) (*readers, error) {
	rs := &readers{}
	ctx, rs.stop = context.WithCancel(ctx)
	ready := make(chan struct{}, n)
	for i := range n {
		r := &reader{cut: make(chan struct{}, 1), got: func(seq uint64, body []byte) {
			if got != nil {
				got(i, seq, body)
			}
		}}
		r.ready = sync.OnceFunc(func() { ready <- struct{}{} })
		var err error
		if r.nc, err = dial(s.servers, i, nats.DisconnectErrHandler(func(*nats.Conn, error) {
			select {
			case r.cut <- struct{}{}:
			default:
			}
		})); err != nil {
			rs.close()
			return nil, err
		}
		rs.all = append(rs.all, r)
		if r.js, err = jetstream.New(r.nc); err != nil {
			rs.close()
			return nil, err
		}
		rs.wg.Go(func() { w.read(ctx, r) })
	}
	for range n {
		select {
		case <-ready:
		case <-ctx.Done():
			rs.close()
			return nil, ctx.Err()
		}
	}
	return rs, nil
}

// await waits until all readers have a message.
func (rs *readers) await(ctx context.Context, seq uint64) error {
	for _, r := range rs.all {
		for r.at.Load() < seq {
			if err := wait.For(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// consumers returns how many were created.
func (rs *readers) consumers() (n uint64) {
	for _, r := range rs.all {
		n += r.created.Load()
	}
	return n
}

// fetched returns how many messages were read by direct gets.
func (rs *readers) fetched() (n uint64) {
	for _, r := range rs.all {
		n += r.fetched.Load()
	}
	return n
}

// close ends the readers.
func (rs *readers) close() {
	rs.stop()
	rs.wg.Wait()
	for _, r := range rs.all {
		r.nc.Close()
	}
}
