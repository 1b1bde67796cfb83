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
	pullHeartbeat  = time.Second
	silenceTimeout = 3 * pullHeartbeat
	// maxStuckHeartbeats is the number of heartbeats without a message, although the log has one, after which the reader starts anew.
	maxStuckHeartbeats = 5
	// idleConsumer is how long the server keeps the consumer of a process that died.
	idleConsumer = time.Minute
	// readBytes bounds the undecoded size of what one call of next returns.
	readBytes = 1 << 20

	firstRetryPause = 50 * time.Millisecond
	maxRetryPause   = 2 * time.Second
	// maxHolePause is the longest pause between two looks at a hole.
	maxHolePause = 5 * time.Second
)

// errInterrupted makes a reader start anew: the connection, the consumer or a message was lost.
var errInterrupted = errors.New("eventlog: reading was interrupted")

// reader reads the log in order from a cursor: the archive where the stream does not begin early enough, then the stream,
// unfiltered, through one ordered consumer. After every interruption it checks its cursor and continues where it was. It is
// not safe for concurrent use.
type reader struct {
	log        *Log
	kinds      events.KindSet  // wanted of the archive
	dec        *events.Decoder // of the stream; nil means not there yet
	cur        events.Cursor   // after the last envelope returned
	decodedSeq uint64          // the last sequence given to the decoder; at first the one before its first
	// skipping is set while the stream is read from before cur, because cur does not say where the warm-up begins.
	skipping bool

	failed error // final

	archive         events.ArchiveReader // nil: not reading the archive
	archiveCtx      context.Context      //nolint:containedctx // what the archive opens for one call lives on for the next
	cancelArchive   context.CancelFunc
	archiveAdvanced bool // an envelope was returned since reading the archive began
	archiveReloaded bool // the archive, since it last gave something

	sub              *nats.Subscription // nil: not reading
	msgs             chan *nats.Msg
	consumer         string
	inbox            string
	lastRead         time.Time // when it was read last
	pulls            uint64    // made, each with a subject of its own
	pullBatch        int       // messages that one pull may bring
	conn             linkState
	delivered        uint64 // the consumer's own count of its messages: a gap means that one was lost
	pullMessagesLeft int    // messages that the current pull may still bring; 0 means there is none
	pullBytesLeft    int    // bytes that it may still bring
	silenceTimer     *time.Timer
	pullForbidden    context.Context //nolint:containedctx // it is the signal that pulling is forbidden
	stopHeeding      context.CancelFunc

	lostEnvelopes []*events.Envelope // of accepted holes, to be returned
	holeDelay     time.Duration      // the pause before the next attempt, in front of a hole

	stuckHeartbeats int    // heartbeats since a message, though there are some
	emptyUpTo       uint64 // up to here there was nothing more when the consumer was created
}

func newReader(l *Log, from events.Cursor) *reader {
	return &reader{log: l, kinds: events.AllKinds, cur: from, decodedSeq: from.Seq, pullBatch: pullMessages}
}

// inArchive reports whether the reader has not reached the stream yet.
func (r *reader) inArchive() bool { return r.dec == nil }

// next returns the next envelopes, at least one, of together about maxBytes undecoded. It waits for them as long as the context
// allows. In front of a hole it fails with [events.ErrHole]; the next call tries again, after a pause that grows up to lastHold. The call
// that first gets past the hole may return nothing, so that the caller learns of it even if no envelope follows. Other errors are
// final.
func (r *reader) next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	retry := firstRetryPause
	if err := wait.For(ctx, r.holeDelay); err != nil {
		return nil, err
	}
	for {
		if r.failed != nil {
			return nil, r.failed
		}
		envs, err := r.read(ctx, maxBytes)
		if err == nil && len(envs) == 0 {
			if retry = firstRetryPause; r.holeDelay > 0 && r.atCursor() {
				r.holeDelay = 0
				return nil, nil
			}
			continue
		}
		if err != nil && ctx.Err() == nil {
			r.close()
			if isTerminal(err) && !r.reloadArchive(ctx, err) {
				r.failed = err
			}
		}
		if len(envs) > 0 {
			r.archiveReloaded, r.holeDelay = false, 0
			return envs, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // the next call continues
		}
		if r.failed != nil {
			return nil, err
		}
		if errors.Is(err, events.ErrHole) {
			r.holeDelay = min(max(2*r.holeDelay, firstRetryPause), maxHolePause)
			return nil, err
		}
		r.log.interruptions.Add(1)
		r.log.logger.Warn("log: reading was interrupted", "after", r.decodedSeq, "error", err)
		if err := wait.For(ctx, retry); err != nil {
			return nil, err
		}
		retry = min(2*retry, maxRetryPause)
	}
}

// atCursor reports whether what is read next in the stream comes after the cursor.
func (r *reader) atCursor() bool {
	return r.dec != nil && !r.dec.Warming() && !r.skipping && r.sub != nil
}

// reloadArchive reports whether the archive was reloaded and should be read again. It may seem damaged because another process has
// scrubbed it, which replaces files. One reload must suffice: if reading fails again before it has returned anything, the damage is
// real.
func (r *reader) reloadArchive(ctx context.Context, err error) bool {
	past, ok := r.log.past.(reloader)
	if !errors.Is(err, events.ErrArchiveDamaged) || !ok || r.archiveReloaded {
		return false
	}
	r.archiveReloaded = true
	return past.Reload(ctx) == nil
}

// read returns the envelopes that are available, and waits only for the first message. It may return nothing and no error, after a
// message of the warm-up or at the end of the archive.
func (r *reader) read(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if r.sub != nil && time.Since(r.lastRead) > idleConsumer/2 {
		// The caller was busy for so long that the server may have dropped the consumer. That is no interruption.
		r.close()
	}
	defer func() { r.lastRead = time.Now() }()
	if r.sub == nil && r.archive == nil {
		if err := r.open(ctx); err != nil {
			return nil, err
		}
	}
	if r.archive != nil {
		return r.readArchive(ctx, maxBytes)
	}
	envs := r.appendLost(nil)
	for bytes := 0; bytes < maxBytes; {
		if r.holeDelay > 0 && r.atCursor() && len(envs) == 0 {
			return nil, nil // past the hole, and there may be nothing after it
		}
		if r.pullMessagesLeft <= 0 || r.pullBytesLeft <= 0 {
			if err := r.pull(); err != nil {
				return envs, err
			}
		}
		msg, err := r.nextMessage(ctx, len(envs) == 0)
		if msg == nil || err != nil {
			return envs, err
		}
		env, err := r.decodeMessage(ctx, msg)
		envs = r.appendLost(envs)
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

// appendLost appends the envelopes of accepted holes that were passed over.
func (r *reader) appendLost(envs []*events.Envelope) []*events.Envelope {
	if n := len(r.lostEnvelopes); n > 0 {
		envs, r.cur, r.lostEnvelopes = append(envs, r.lostEnvelopes...), r.lostEnvelopes[n-1].Cursor, nil
	}
	return envs
}

// open checks the cursor, and begins to read the archive or creates a consumer that begins after what was read.
func (r *reader) open(ctx context.Context) error {
	state, err := r.log.link.await(ctx)
	if err != nil {
		return err
	}
	if err := r.findStart(ctx); err != nil {
		return err
	}
	if r.archive != nil {
		return nil
	}
	if err := r.checkNextMessage(ctx); err != nil {
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
			OptStartSeq:       r.decodedSeq + 1,
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
		return fmt.Errorf("%w: the log went on in a new epoch", errInterrupted)
	}
	info := c.CachedInfo()
	r.consumer, r.stuckHeartbeats, r.emptyUpTo = info.Name, 0, 0
	if info.NumPending == 0 {
		r.emptyUpTo = last
	}
	// The NATS client drops messages when the channel is full, so it must hold the messages of two pulls, and heartbeats.
	r.msgs = make(chan *nats.Msg, 2*r.pullBatch+256)
	r.inbox = r.log.link.nc.NewInbox()
	if r.sub, err = r.log.link.nc.ChanSubscribe(r.inbox+".*", r.msgs); err != nil {
		return unavailable(err)
	}
	r.conn, r.delivered, r.pullMessagesLeft, r.pullBytesLeft = state, 0, 0, 0
	r.silenceTimer = time.NewTimer(silenceTimeout)
	r.pullForbidden, r.stopHeeding = r.log.link.heed(context.WithoutCancel(ctx), askNext+r.consumer) // until close
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
	req, err := json.Marshal(pullRequest{r.pullBatch, pullBytes, pullExpires, pullHeartbeat})
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	r.pulls++
	if err := r.log.link.nc.PublishRequest(askNext+r.consumer, r.pullInbox(), req); err != nil {
		return unavailable(err)
	}
	r.pullMessagesLeft, r.pullBytesLeft = r.pullBatch, pullBytes
	r.silenceTimer.Reset(silenceTimeout)
	return nil
}

// pullInbox is where the server answers the current pull.
func (r *reader) pullInbox() string { return r.inbox + "." + strconv.FormatUint(r.pulls, 10) }

// nextMessage returns the next message of the log. It may wait for it, or else returns nil when there is none now.
func (r *reader) nextMessage(ctx context.Context, wait bool) (*nats.Msg, error) {
	for {
		msg, err := r.takeFromServer(ctx, wait)
		if msg == nil || err != nil {
			return nil, err
		}
		if strings.HasPrefix(msg.Reply, ackPrefix) {
			r.pullMessagesLeft--
			r.pullBytesLeft -= msg.Size() // the same count as the server's, which ends the pull by it
			return msg, nil
		}
		if err := r.handleStatus(msg); err != nil {
			return nil, err
		}
		if r.pullMessagesLeft == 0 {
			if err := r.pull(); err != nil {
				return nil, err
			}
		}
	}
}

// takeFromServer takes what the server sent next, messages of the log and others.
func (r *reader) takeFromServer(ctx context.Context, wait bool) (*nats.Msg, error) {
	select {
	case msg := <-r.msgs:
		return msg, nil
	default:
	}
	if !wait {
		return nil, nil
	}
	r.silenceTimer.Reset(silenceTimeout)
	select {
	case msg := <-r.msgs:
		return msg, nil
	case <-r.conn.ctx.Done():
		return nil, fmt.Errorf("%w: the connection changed", errInterrupted)
	case <-r.pullForbidden.Done():
		return nil, fmt.Errorf("%w: %w", errInterrupted, context.Cause(r.pullForbidden)) //nolint:contextcheck // of the pulling
	case <-r.silenceTimer.C:
		return nil, fmt.Errorf("%w: no word from the server for %v", errInterrupted, silenceTimeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// handleStatus handles what the server says about the consumer and the pull.
func (r *reader) handleStatus(msg *nats.Msg) error {
	code, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch {
	case code == "100":
		// A heartbeat. All is well, unless the log has messages that the consumer does not deliver.
		if r.log.last.Load() <= max(r.decodedSeq, r.emptyUpTo) {
			r.stuckHeartbeats = 0
		} else if r.stuckHeartbeats++; r.stuckHeartbeats >= maxStuckHeartbeats {
			return fmt.Errorf("%w: the log goes to sequence %d, but the server delivers nothing after %d",
				errInterrupted, r.log.last.Load(), r.decodedSeq)
		}
		return nil
	case code == "408", code == "404",
		code == "409" && (strings.HasPrefix(text, "Message Size") || strings.HasPrefix(text, "Batch Completed")):
		// The server also reports the end of the previous pull, which may arrive after the next was made: only the current one
		// counts.
		if msg.Subject == r.pullInbox() {
			r.pullMessagesLeft = 0
		}
		return nil
	}
	return fmt.Errorf("%w: the server says %s %s", errInterrupted, code, text)
}

// decodeMessage decodes a message.
func (r *reader) decodeMessage(ctx context.Context, msg *nats.Msg) (*events.Envelope, error) {
	d, ok := parseDelivery(msg.Reply)
	if !ok {
		return nil, fmt.Errorf("%w: malformed reply subject %q", errInterrupted, msg.Reply)
	}
	if r.delivered++; d.ordinal != r.delivered {
		return nil, fmt.Errorf("%w: a message was lost before sequence %d", errInterrupted, d.seq)
	}
	if d.seq > r.decodedSeq+1 {
		if err := r.crossGap(ctx, d.seq); err != nil {
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
	r.decodedSeq, r.stuckHeartbeats = d.seq, 0
	r.log.noteLast(d.seq)
	if env == nil {
		return nil, nil
	}
	if passed, err := r.skipKnown(env); passed || err != nil {
		return nil, err
	}
	env.Traces = tracesOf(msg.Header)
	return env, nil
}

// close releases what reading holds. The next call of next begins again after the last envelope returned.
func (r *reader) close() {
	if r.archive != nil {
		r.archive.Close()
		r.cancelArchive()
		r.archive = nil
	}
	if r.sub == nil {
		return
	}
	_ = r.sub.Unsubscribe() // fails only when the connection is gone, and with it the subscription
	r.sub = nil
	r.silenceTimer.Stop()
	r.stopHeeding()
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
