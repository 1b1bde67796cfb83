package streams

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events/wait"
)

// The settings of skein's own reader of the log.
const (
	pullMessages = 4096
	pullBytes    = 8 << 20
	pullExpires  = 30 * time.Second
	heartbeat    = time.Second
	lostAfter    = 3 * heartbeat
	firstAsk     = askTimeout / 8
	firstRetry   = 50 * time.Millisecond
	lastRetry    = 2 * time.Second
)

var errLost = errors.New("the consumer, or a message of it, was lost")

// consume reads by an ordered pull consumer, and creates another one when it is lost.
func consume(ctx context.Context, r *reader) {
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
		before := r.last
		_ = r.consumeOnce(ctx) // whatever it was, another consumer begins after the last message
		if r.last > before {
			retry = firstRetry
		}
		_ = wait.For(ctx, retry)
	}
}

// newConsumer asks the cluster for a consumer. It does not answer while it elects a leader.
func (r *reader) newConsumer(ctx context.Context) (jetstream.Consumer, error) {
	r.created.Add(1)
	for timeout := firstAsk; ; timeout *= 2 {
		ask, cancel := context.WithTimeout(ctx, timeout)
		c, err := r.js.CreateConsumer(ask, streamName, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.last + 1, AckPolicy: jetstream.AckNonePolicy,
			MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
		})
		cancel()
		if err == nil || !errors.Is(err, context.DeadlineExceeded) || 2*timeout > askTimeout || ctx.Err() != nil {
			return c, err
		}
	}
}

// consumeOnce reads by one consumer until it is lost.
func (r *reader) consumeOnce(ctx context.Context) error {
	for !r.nc.IsConnected() {
		if err := wait.For(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	select {
	case <-r.cut: // of the connection before
	default:
	}
	c, err := r.newConsumer(ctx)
	if err != nil {
		return err
	}
	p := puller{reader: r, consumer: c.CachedInfo().Name, inbox: r.nc.NewInbox(), msgs: make(chan *nats.Msg, 2*pullMessages+256)}
	sub, err := r.nc.ChanSubscribe(p.inbox+".*", p.msgs)
	if err != nil {
		return err
	}
	defer func() {
		_ = sub.Unsubscribe()
		_ = r.nc.Publish("$JS.API.CONSUMER.DELETE."+streamName+"."+p.consumer, nil)
	}()
	return p.run(ctx)
}

// puller reads by one consumer.
type puller struct {
	*reader

	consumer, inbox string
	msgs            chan *nats.Msg
	pulls           int
	wanted, budget  int // messages and bytes that the current pull may still bring
}

func (p *puller) subject() string { return p.inbox + "." + strconv.Itoa(p.pulls) }

func (p *puller) pull() error {
	request, err := json.Marshal(map[string]int64{
		"batch": pullMessages, "max_bytes": pullBytes, "expires": int64(pullExpires), "idle_heartbeat": int64(heartbeat),
	})
	if err != nil {
		return err
	}
	p.pulls++
	p.wanted, p.budget = pullMessages, pullBytes
	return p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+streamName+"."+p.consumer, p.subject(), request)
}

// run reads until something is wrong or the context ends.
func (p *puller) run(ctx context.Context) error {
	silence := time.NewTimer(lostAfter)
	defer silence.Stop()
	for {
		if p.wanted <= 0 || p.budget <= 0 {
			if err := p.pull(); err != nil {
				return err
			}
			p.ready()
		}
		silence.Reset(lostAfter)
		select {
		case msg := <-p.msgs:
			if err := p.take(msg); err != nil {
				return err
			}
		case <-p.cut:
			return errLost
		case <-silence.C:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take takes what the server sends for a pull.
func (p *puller) take(msg *nats.Msg) error {
	switch status := msg.Header.Get("Status"); {
	case status == "100":
		return nil
	case status == "408", status == "409" && strings.HasPrefix(msg.Header.Get("Description"), "Message Size"):
		if msg.Subject == p.subject() { // the end of an earlier pull changes nothing
			p.wanted = 0
		}
		return nil
	case status != "":
		return errLost
	}
	// $JS.ACK.stream.consumer.delivered.seq.ordinal.nanoseconds.pending
	tokens := strings.Split(msg.Reply, ".")
	if len(tokens) < 9 {
		return errLost
	}
	seq, err := strconv.ParseUint(tokens[len(tokens)-4], 10, 64)
	if err != nil || seq != p.last+1 {
		return errLost
	}
	p.wanted, p.budget = p.wanted-1, p.budget-msg.Size()
	p.deliver(seq, msg.Data)
	return nil
}
