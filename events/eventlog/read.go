package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// pullMessages and pullBytes bound one request for messages, and with it what a reader holds undecoded.
	// Asking for one at a time would be forty times slower.
	pullMessages = 4096
	pullBytes    = 8 << 20
	pullExpires  = 30 * time.Second
	// pullHeartbeat is the interval of the server's idle heartbeats. After a silence of lostAfter the reader starts anew.
	pullHeartbeat = time.Second
	lostAfter     = 3 * pullHeartbeat
	// stuckAfter is the number of heartbeats without a message, although the log has one, after which the reader starts anew.
	stuckAfter = 5
	// idleConsumer is how long the server keeps the consumer of a process that died.
	idleConsumer = time.Minute
	// readBytes bounds the undecoded size of what one call of next returns.
	readBytes = 1 << 20

	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
	// lastHold is the longest pause between two looks at a hole.
	lastHold = 5 * time.Second
)

// errLost makes a reader start anew: the connection, the consumer or a message was lost.
var errLost = errors.New("eventlog: reading was interrupted")

// reader reads the log in order from a cursor: the archive where the stream does not begin early enough, then the stream,
// unfiltered, through one ordered consumer. After every interruption it checks its cursor and continues where it was. It is
// not safe for concurrent use.
type reader struct {
	log   *Log
	kinds events.KindSet  // wanted of the archive
	dec   *events.Decoder // of the stream; nil means not there yet
	cur   events.Cursor   // after the last envelope returned
	fed   uint64          // the last sequence given to the decoder; at first the one before its first
	// passing is set while the stream is read from before cur, because cur does not say where the warm-up begins.
	passing bool

	failed error // final

	past       events.ArchiveReader // nil: not reading the archive
	pastLife   context.Context      //nolint:containedctx // what the archive opens for one call lives on for the next
	endArchive context.CancelFunc
	moved      bool // an envelope was returned since reading the archive began
	reloaded   bool // the archive, since it last gave something

	sub      *nats.Subscription // nil: not reading
	msgs     chan *nats.Msg
	consumer string
	inbox    string
	left     time.Time // when it was read last
	pulls    uint64    // made, each with a subject of its own
	batch    int       // messages that one pull may bring
	conn     linkState
	ordinal  uint64 // the consumer's own count of its messages: a gap means that one was lost
	wanted   int    // messages that the current pull may still bring; 0 means there is none
	budget   int    // bytes that it may still bring
	silence  *time.Timer
	heeded   context.Context //nolint:containedctx // it is the signal that pulling is forbidden
	unheed   context.CancelFunc

	lost []*events.Envelope // of accepted holes, to be returned
	hold time.Duration      // the pause before the next attempt, in front of a hole

	stuck     int    // heartbeats since a message, though there are some
	nothingTo uint64 // up to here there was nothing more when the consumer was created
}

func newReader(l *Log, from events.Cursor) *reader {
	return &reader{log: l, kinds: events.AllKinds, cur: from, fed: from.Seq, batch: pullMessages}
}

// inArchive reports whether the reader has not reached the stream yet.
func (r *reader) inArchive() bool { return r.dec == nil }

// next returns the next envelopes, at least one, of together about maxBytes undecoded. It waits for them as long as the context
// allows. In front of a hole it fails with [events.ErrHole]; the next call tries again, after a pause that grows up to lastHold. The call
// that first gets past the hole may return nothing, so that the caller learns of it even if no envelope follows. Other errors are
// final.
func (r *reader) next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	retry := firstRetry
	if err := wait.For(ctx, r.hold); err != nil {
		return nil, err
	}
	for {
		if r.failed != nil {
			return nil, r.failed
		}
		envs, err := r.read(ctx, maxBytes)
		if err == nil && len(envs) == 0 {
			if retry = firstRetry; r.hold > 0 && r.atCursor() {
				r.hold = 0
				return nil, nil
			}
			continue
		}
		if err != nil && ctx.Err() == nil {
			r.close()
			if final(err) && !r.rewritten(ctx, err) {
				r.failed = err
			}
		}
		if len(envs) > 0 {
			r.reloaded, r.hold = false, 0
			return envs, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // the next call continues
		}
		if r.failed != nil {
			return nil, err
		}
		if errors.Is(err, events.ErrHole) {
			r.hold = min(max(2*r.hold, firstRetry), lastHold)
			return nil, err
		}
		r.log.interruptions.Add(1)
		r.log.logger.Warn("log: reading was interrupted", "after", r.fed, "error", err)
		if err := wait.For(ctx, retry); err != nil {
			return nil, err
		}
		retry = min(2*retry, lastRetry)
	}
}

// atCursor reports whether what is read next in the stream comes after the cursor.
func (r *reader) atCursor() bool {
	return r.dec != nil && !r.dec.Warming() && !r.passing && r.sub != nil
}

// rewritten reports whether the archive was reloaded and should be read again. It may seem damaged because another process has
// scrubbed it, which replaces files. One reload must suffice: if reading fails again before it has returned anything, the damage is
// real.
func (r *reader) rewritten(ctx context.Context, err error) bool {
	past, ok := r.log.past.(reloader)
	if !errors.Is(err, events.ErrArchiveDamaged) || !ok || r.reloaded {
		return false
	}
	r.reloaded = true
	return past.Reload(ctx) == nil
}

// read returns the envelopes that are available, and waits only for the first message. It may return nothing and no error, after a
// message of the warm-up or at the end of the archive.
func (r *reader) read(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if r.sub != nil && time.Since(r.left) > idleConsumer/2 {
		// The caller was busy for so long that the server may have dropped the consumer. That is no interruption.
		r.close()
	}
	defer func() { r.left = time.Now() }()
	if r.sub == nil && r.past == nil {
		if err := r.open(ctx); err != nil {
			return nil, err
		}
	}
	if r.past != nil {
		return r.readArchive(ctx, maxBytes)
	}
	envs := r.takeLost(nil)
	for bytes := 0; bytes < maxBytes; {
		if r.hold > 0 && r.atCursor() && len(envs) == 0 {
			return nil, nil // past the hole, and there may be nothing after it
		}
		if r.wanted <= 0 || r.budget <= 0 {
			if err := r.pull(); err != nil {
				return envs, err
			}
		}
		msg, err := r.receive(ctx, len(envs) == 0)
		if msg == nil || err != nil {
			return envs, err
		}
		env, err := r.take(ctx, msg)
		envs = r.takeLost(envs)
		if err != nil {
			return envs, err
		}
		bytes += len(msg.Data)
		if env != nil {
			envs = append(envs, env)
			r.cur = env.Cursor
		}
	}
	return envs, nil
}

// takeLost appends the envelopes of accepted holes that were passed over.
func (r *reader) takeLost(envs []*events.Envelope) []*events.Envelope {
	if n := len(r.lost); n > 0 {
		envs, r.cur, r.lost = append(envs, r.lost...), r.lost[n-1].Cursor, nil
	}
	return envs
}

// open checks the cursor, and begins to read the archive or creates a consumer that begins after what was read.
func (r *reader) open(ctx context.Context) error {
	state, err := r.log.link.await(ctx)
	if err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if r.past != nil {
		return nil
	}
	if err := r.ahead(ctx); err != nil {
		return err
	}
	meta := r.log.meta()
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	r.log.link.verify(state)
	last := r.log.last.Load()
	var c jetstream.Consumer
	err = r.log.ask(ctx, func(ctx context.Context) (err error) { // repeating is safe: the server drops unused consumers
		c, err = r.log.link.js.CreateConsumer(ctx, StreamName, jetstream.ConsumerConfig{
			// The start sequence is ignored without the policy.
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       r.fed + 1,
			AckPolicy:         jetstream.AckNonePolicy,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: idleConsumer,
		})
		return err
	}, askConsumer)
	if err != nil {
		return unavailable(err)
	}
	// A new epoch deletes all consumers. This one may have been created after that, by a reader that does not know of the epoch
	// yet, so the metadata is read once more.
	if _, err := r.log.stream(ctx); err != nil {
		return err
	}
	if r.log.meta() != meta {
		return fmt.Errorf("%w: the log went on in a new epoch", errLost)
	}
	info := c.CachedInfo()
	r.consumer, r.stuck, r.nothingTo = info.Name, 0, 0
	if info.NumPending == 0 {
		r.nothingTo = last
	}
	// The NATS client drops messages when the channel is full, so it must hold the messages of two pulls, and heartbeats.
	r.msgs = make(chan *nats.Msg, 2*r.batch+256)
	r.inbox = r.log.link.nc.NewInbox()
	if r.sub, err = r.log.link.nc.ChanSubscribe(r.inbox+".*", r.msgs); err != nil {
		return unavailable(err)
	}
	r.conn, r.ordinal, r.wanted, r.budget = state, 0, 0, 0
	r.silence = time.NewTimer(lostAfter)
	r.heeded, r.unheed = r.log.link.heed(context.WithoutCancel(ctx), askNext+r.consumer) // until close
	return nil
}

type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// pull asks for the next messages.
func (r *reader) pull() error {
	req, err := json.Marshal(pullRequest{r.batch, pullBytes, pullExpires, pullHeartbeat})
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	r.pulls++
	if err := r.log.link.nc.PublishRequest(askNext+r.consumer, r.pullInbox(), req); err != nil {
		return unavailable(err)
	}
	r.wanted, r.budget = r.batch, pullBytes
	r.silence.Reset(lostAfter)
	return nil
}

// pullInbox is where the server answers the current pull.
func (r *reader) pullInbox() string { return r.inbox + "." + strconv.FormatUint(r.pulls, 10) }

// receive returns the next message of the log. It may wait for it, or else returns nil when there is none now.
func (r *reader) receive(ctx context.Context, wait bool) (*nats.Msg, error) {
	for {
		msg, err := r.arrive(ctx, wait)
		if msg == nil || err != nil {
			return nil, err
		}
		if strings.HasPrefix(msg.Reply, ackPrefix) {
			r.wanted--
			r.budget -= msg.Size() // the same count as the server's, which ends the pull by it
			return msg, nil
		}
		if err := r.status(msg); err != nil {
			return nil, err
		}
		if r.wanted == 0 {
			if err := r.pull(); err != nil {
				return nil, err
			}
		}
	}
}

// arrive takes what the server sent next, messages of the log and others.
func (r *reader) arrive(ctx context.Context, wait bool) (*nats.Msg, error) {
	select {
	case msg := <-r.msgs:
		return msg, nil
	default:
	}
	if !wait {
		return nil, nil
	}
	r.silence.Reset(lostAfter)
	select {
	case msg := <-r.msgs:
		return msg, nil
	case <-r.conn.ctx.Done():
		return nil, fmt.Errorf("%w: the connection changed", errLost)
	case <-r.heeded.Done():
		return nil, fmt.Errorf("%w: %w", errLost, context.Cause(r.heeded)) //nolint:contextcheck // of the pulling
	case <-r.silence.C:
		return nil, fmt.Errorf("%w: no word from the server for %v", errLost, lostAfter)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// status handles what the server says about the consumer and the pull.
func (r *reader) status(msg *nats.Msg) error {
	code, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch {
	case code == "100":
		// A heartbeat. All is well, unless the log has messages that the consumer does not deliver.
		if r.log.last.Load() <= max(r.fed, r.nothingTo) {
			r.stuck = 0
		} else if r.stuck++; r.stuck >= stuckAfter {
			return fmt.Errorf("%w: the log goes to sequence %d, but the server delivers nothing after %d",
				errLost, r.log.last.Load(), r.fed)
		}
		return nil
	case code == "408", code == "404",
		code == "409" && (strings.HasPrefix(text, "Message Size") || strings.HasPrefix(text, "Batch Completed")):
		// The server also reports the end of the previous pull, which may arrive after the next was made: only the current one
		// counts.
		if msg.Subject == r.pullInbox() {
			r.wanted = 0
		}
		return nil
	}
	return fmt.Errorf("%w: the server says %s %s", errLost, code, text)
}

// take decodes a message.
func (r *reader) take(ctx context.Context, msg *nats.Msg) (*events.Envelope, error) {
	d, ok := parseDelivery(msg.Reply)
	if !ok {
		return nil, fmt.Errorf("%w: malformed reply subject %q", errLost, msg.Reply)
	}
	if r.ordinal++; d.ordinal != r.ordinal {
		return nil, fmt.Errorf("%w: a message was lost before sequence %d", errLost, d.seq)
	}
	if d.seq > r.fed+1 {
		if err := r.gap(ctx, d.seq); err != nil {
			return nil, err
		}
	}
	var env *events.Envelope
	var err error
	if _, lost := r.log.meta().accepted(d.seq); lost { // it came back after its loss was accepted
		env, err = r.dec.DecodeLost(d.seq)
	} else {
		env, err = r.dec.Decode(d.seq, d.stamp, msg.Data)
	}
	if err != nil {
		return nil, err
	}
	r.fed, r.stuck = d.seq, 0
	r.log.noteLast(d.seq)
	if env == nil {
		return nil, nil
	}
	if passed, err := r.pass(env); passed || err != nil {
		return nil, err
	}
	env.Traces = tracesOf(msg.Header)
	return env, nil
}

// close releases what reading holds. The next call of next begins again after the last envelope returned.
func (r *reader) close() {
	if r.past != nil {
		r.past.Close()
		r.endArchive()
		r.past = nil
	}
	if r.sub == nil {
		return
	}
	_ = r.sub.Unsubscribe() // fails only when the connection is gone, and with it the subscription
	r.sub = nil
	r.silence.Stop()
	r.unheed()
	if state := r.log.link.state(); state.n == r.conn.n && state.up {
		// Best effort: the server forgets idle consumers by itself.
		_ = r.log.link.nc.Publish(askConsumerDelete+r.consumer, nil)
	}
}

const ackPrefix = "$JS.ACK."

// delivery is the metadata of a message, which JetStream encodes in its reply subject.
type delivery struct {
	seq     uint64
	ordinal uint64
	stamp   events.Micros
}

// parseDelivery reads $JS.ACK.[domain.account.]stream.consumer.delivered.seq.ordinal.nanoseconds.pending[.token].
func parseDelivery(reply string) (d delivery, ok bool) {
	var tokens [12]string
	n := 0
	for rest, more := reply, true; more && n < len(tokens); n++ {
		tokens[n], rest, more = strings.Cut(rest, ".")
	}
	from := 4
	if n >= 11 {
		from = 6
	} else if n != 9 {
		return d, false
	}
	var num [3]uint64
	for i := range num {
		v, err := strconv.ParseUint(tokens[from+1+i], 10, 63)
		if err != nil {
			return d, false
		}
		num[i] = v
	}
	return delivery{seq: num[0], ordinal: num[1], stamp: events.Micros(num[2] / 1000)}, true
}
