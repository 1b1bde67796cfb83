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
	// pullMessages and pullBytes limit one pull, which is a request to the server for messages.
	// They thereby limit the undecoded messages that a reader holds. Asking for one message at a
	// time would be forty times slower.
	pullMessages = 4096
	pullBytes    = 8 << 20
	pullExpires  = 30 * time.Second
	// pullHeartbeat is the interval of the server's idle heartbeats. If neither a message nor a
	// heartbeat arrives for silenceTimeout, the reader starts again with a new consumer.
	pullHeartbeat  = time.Second
	silenceTimeout = 3 * pullHeartbeat
	// maxStuckHeartbeats is the number of heartbeats in a row, without a message although the log
	// has one, after which the reader starts again.
	maxStuckHeartbeats = 5
	// consumerIdleTimeout is how long the server keeps a consumer that nobody uses, such as that of
	// a process that died.
	consumerIdleTimeout = time.Minute
	// readBytes is the most that callers ask of one call of nextEnvelopes, in undecoded bytes.
	readBytes = 1 << 20

	firstRetryPause = 50 * time.Millisecond
	maxRetryPause   = 2 * time.Second
	// maxHolePause is the longest pause before a reader looks again whether a hole is still there.
	maxHolePause = 5 * time.Second
)

// errInterrupted makes a reader start again at its cursor, for example because the connection, the
// consumer or a message was lost.
var errInterrupted = errors.New("eventlog: reading was interrupted")

// reader reads the log in order from a cursor. It reads from the archive what the stream no longer
// has, and then every message of the stream, through one consumer at a time. After every
// interruption it checks its cursor and continues after the last returned envelope. It is not safe
// for concurrent use.
type reader struct {
	log *Log
	// kinds are the kinds of events to read from the archive.
	kinds events.KindSet
	// dec decodes the stream. It is nil while the reader has not reached the stream, and while it
	// has gone back to the archive.
	dec *events.Decoder
	// cur is the cursor after the last returned envelope.
	cur events.Cursor
	// decodedSeq is the last sequence that was passed to dec. Before the first message, it is the
	// sequence before the one at which dec begins.
	decodedSeq uint64
	// skipping is true while the stream is read from before cur, because cur does not say where the
	// warm-up begins. Envelopes up to cur are then not returned.
	skipping bool
	// terminalErr is the error that ended the reader. All later calls return it, too.
	terminalErr error

	// archive is the open reader of the archive. It is nil while the archive is not read.
	archive events.ArchiveReader
	// archiveCtx is the context of all calls of archive: what the archive opens for one call is
	// used by the next.
	archiveCtx    context.Context //nolint:containedctx // see above
	cancelArchive context.CancelFunc
	// archiveAdvanced is true if the archive has returned an envelope since it was opened.
	archiveAdvanced bool
	// archiveReloaded is true if the archive was reloaded since the reader last returned an
	// envelope.
	archiveReloaded bool

	// sub is the subscription to the messages of the consumer. It is nil while the stream is not
	// read.
	sub       *nats.Subscription
	msgs      chan *nats.Msg
	consumer  string
	inbox     string
	connState connState
	// lastRead is when readAvailable last returned.
	lastRead time.Time
	// delivered is the number of messages that have arrived from the consumer. The server numbers
	// its deliveries: if its number differs, a message was lost.
	delivered uint64

	// pulls is the number of pulls that were made. Each pull has its own subject for the answers.
	pulls uint64
	// pullBatch is the number of messages that one pull may deliver.
	pullBatch int
	// pullMessagesLeft is the number of messages that the current pull may still deliver. It is 0
	// if there is no pull.
	pullMessagesLeft int
	// pullBytesLeft is the number of bytes that the current pull may still deliver.
	pullBytesLeft int
	silenceTimer  *time.Timer
	// pullForbidden is a context that ends when the server says that this client may not pull.
	pullForbidden           context.Context //nolint:containedctx // it is the signal
	stopWatchingPermissions context.CancelFunc

	// lostEnvelopes are the envelopes of accepted holes that readAvailable returns next.
	lostEnvelopes []*events.Envelope
	// holeDelay is the pause before the next attempt. It is 0 unless the reader stands in front of
	// a hole.
	holeDelay time.Duration

	// stuckHeartbeats is the number of heartbeats in a row that came although the log has messages
	// that the consumer has not delivered.
	stuckHeartbeats int
	// emptyUpTo is the last sequence of the log from just before the consumer was created, if the
	// consumer had nothing to deliver then, and otherwise 0. The reader expects no message up to
	// it.
	emptyUpTo uint64
}

// newReader returns a reader that begins after the cursor.
func newReader(l *Log, from events.Cursor) *reader {
	return &reader{log: l, kinds: events.AllKinds, cur: from, decodedSeq: from.Seq, pullBatch: pullMessages}
}

// inArchive reports whether the reader has not reached the stream yet.
func (r *reader) inArchive() bool { return r.dec == nil }

// nextEnvelopes returns the next envelopes, of together about maxBytes undecoded. It waits until
// there is at least one, or until ctx ends.
//
// In front of a hole it fails with [events.ErrHole]. The next call tries again after a pause, which
// grows up to maxHolePause. The first call that gets past the hole may return no envelopes, so that
// the caller learns that the hole is gone even if no envelope follows. All other errors except that
// of ctx are terminal.
func (r *reader) nextEnvelopes(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	retry := firstRetryPause
	if err := wait.For(ctx, r.holeDelay); err != nil {
		return nil, err
	}

	for {
		if r.terminalErr != nil {
			return nil, r.terminalErr
		}
		envs, err := r.readAvailable(ctx, maxBytes)
		if err == nil && len(envs) == 0 {
			retry = firstRetryPause
			if r.holeDelay > 0 && r.atCursor() {
				r.holeDelay = 0
				return nil, nil
			}
			continue
		}

		// The end of ctx interrupts nothing but this call, so the reader keeps its consumer.
		if err != nil && ctx.Err() == nil {
			r.close()
			if isTerminal(err) && !r.reloadArchive(ctx, err) {
				r.terminalErr = err
			}
		}
		// What was read before an error is returned first. The next call meets the error again.
		if len(envs) > 0 {
			r.archiveReloaded = false
			r.holeDelay = 0
			return envs, nil
		}

		if ctx.Err() != nil {
			return nil, ctx.Err() // the next call continues
		}
		if r.terminalErr != nil {
			return nil, err
		}
		if errors.Is(err, events.ErrHole) {
			r.holeDelay = min(max(2*r.holeDelay, firstRetryPause), maxHolePause)
			return nil, err
		}

		// Everything else is an interruption, after which the reader tries again.
		r.log.interruptions.Add(1)
		r.log.logger.Warn("log: reading was interrupted", "after", r.decodedSeq, "error", err)
		if err := wait.For(ctx, retry); err != nil {
			return nil, err
		}
		retry = min(2*retry, maxRetryPause)
	}
}

// atCursor reports whether the next message of the stream is the one after the cursor.
func (r *reader) atCursor() bool {
	return r.dec != nil && !r.dec.IsWarmingUp() && !r.skipping && r.sub != nil
}

// reloadArchive reloads an archive that seems damaged, and reports whether to read it again. An
// archive may seem damaged because another process has scrubbed it, which replaces its files. One
// reload is enough: if reading fails again before the reader has returned an envelope, the damage
// is real.
func (r *reader) reloadArchive(ctx context.Context, err error) bool {
	archive, ok := r.log.archive.(reloader)
	if !errors.Is(err, events.ErrArchiveDamaged) || !ok || r.archiveReloaded {
		return false
	}
	r.archiveReloaded = true
	return archive.Reload(ctx) == nil
}

// readAvailable returns the envelopes that are available. It waits for messages only while it has
// no envelope. It may return no envelopes and no error: after maxBytes of messages of the warm-up,
// at the end of the archive, and past a hole.
func (r *reader) readAvailable(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if r.sub != nil && time.Since(r.lastRead) > consumerIdleTimeout/2 {
		// The caller was busy for so long that the server may have dropped the consumer. That does
		// not count as an interruption.
		r.close()
	}
	defer func() { r.lastRead = time.Now() }()

	if r.sub == nil && r.archive == nil {
		if err := r.openSource(ctx); err != nil {
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
			if err := r.requestMessages(); err != nil {
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

// appendLost appends the envelopes of the accepted holes that the reader has crossed, and moves the
// cursor after them.
func (r *reader) appendLost(envs []*events.Envelope) []*events.Envelope {
	if n := len(r.lostEnvelopes); n > 0 {
		envs = append(envs, r.lostEnvelopes...)
		r.cur = r.lostEnvelopes[n-1].Cursor
		r.lostEnvelopes = nil
	}
	return envs
}

// openSource checks the cursor. Then it begins to read the archive, or creates a consumer that
// begins after the last decoded message.
func (r *reader) openSource(ctx context.Context) error {
	state, err := r.log.conn.waitUntilUp(ctx)
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

	// findStart has compared the log with the cursor, so nobody else needs to check this
	// connection.
	r.log.conn.markVerified(state)

	meta := r.log.meta()
	// last is read before the consumer exists: the consumer must deliver any later message, so
	// emptyUpTo must not include it.
	last := r.log.lastKnownSeq.Load()
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout) // two requests follow
	defer cancel()
	c, err := r.log.createConsumer(ctx, r.decodedSeq+1, false)
	if err != nil {
		return err
	}

	// A new epoch deletes all consumers. This one may have been created after that, by a reader
	// that does not know of the epoch yet, so the metadata is read once more.
	if _, err := r.log.fetchStream(ctx); err != nil {
		return err
	}
	if r.log.meta() != meta {
		return fmt.Errorf("%w: the log went on in a new epoch", errInterrupted)
	}

	info := c.CachedInfo()
	r.consumer = info.Name
	r.stuckHeartbeats = 0
	r.emptyUpTo = 0
	if info.NumPending == 0 {
		r.emptyUpTo = last
	}

	// The NATS client drops messages when the channel is full, so the channel must be large enough
	// for the messages of two pulls and for heartbeats.
	r.msgs = make(chan *nats.Msg, 2*r.pullBatch+256)
	r.inbox = r.log.conn.nc.NewInbox()
	if r.sub, err = r.log.conn.nc.ChanSubscribe(r.inbox+".*", r.msgs); err != nil {
		return wrapUnavailable(err)
	}

	r.connState = state
	r.delivered = 0
	r.pullMessagesLeft = 0
	r.pullBytesLeft = 0
	r.silenceTimer = time.NewTimer(silenceTimeout)
	// The permission to pull is watched until close, which may be long after this call.
	watchCtx := context.WithoutCancel(ctx)
	r.pullForbidden, r.stopWatchingPermissions = r.log.conn.watchPermissions(watchCtx, consumerNextPrefix+r.consumer)
	return nil
}

// createConsumer creates a consumer that delivers the messages from a sequence on. With headersOnly
// set, it delivers only their headers.
func (l *Log) createConsumer(ctx context.Context, from uint64, headersOnly bool) (c jetstream.Consumer, err error) {
	// The request may be repeated, because the server forgets consumers that nobody uses.
	err = l.requestWithRetries(ctx, func(ctx context.Context) (err error) {
		c, err = l.conn.js.CreateConsumer(ctx, StreamName, jetstream.ConsumerConfig{
			// The start sequence is ignored without the policy.
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:   from,
			// The reader notices missing messages by their numbers, so it needs no
			// acknowledgements, and the server need not store the state of the consumer.
			AckPolicy:         jetstream.AckNonePolicy,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: consumerIdleTimeout,
			HeadersOnly:       headersOnly,
		})
		return err
	}, consumerCreateSubject)
	return c, wrapUnavailable(err)
}

// discardConsumer asks the server to delete a consumer, without waiting for the answer. If the
// request is lost, the server deletes the consumer after consumerIdleTimeout.
func (l *Log) discardConsumer(name string) { _ = l.conn.nc.Publish(consumerDeletePrefix+name, nil) }

// pullRequest is the body of a pull, as JetStream defines it.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// requestMessages asks the server for the next messages.
func (r *reader) requestMessages() error {
	req, err := json.Marshal(pullRequest{r.pullBatch, pullBytes, pullExpires, pullHeartbeat})
	if err != nil {
		return fmt.Errorf("eventlog: %w", err)
	}
	r.pulls++
	if err := r.log.conn.nc.PublishRequest(consumerNextPrefix+r.consumer, r.pullInbox(), req); err != nil {
		return wrapUnavailable(err)
	}

	r.pullMessagesLeft = r.pullBatch
	r.pullBytesLeft = pullBytes
	r.silenceTimer.Reset(silenceTimeout)
	return nil
}

// pullInbox returns the subject to which the server answers the current pull.
func (r *reader) pullInbox() string { return r.inbox + "." + strconv.FormatUint(r.pulls, 10) }

// nextMessage returns the next message of the log. If there is none, it waits for one if wait is
// set, or else returns nil.
func (r *reader) nextMessage(ctx context.Context, wait bool) (*nats.Msg, error) {
	for {
		msg, err := r.takeFromServer(ctx, wait)
		if msg == nil || err != nil {
			return nil, err
		}
		if strings.HasPrefix(msg.Reply, ackPrefix) {
			r.pullMessagesLeft--
			// The server counts bytes the same way, and ends the pull when none are left.
			r.pullBytesLeft -= msg.Size()
			return msg, nil
		}
		if err := r.handleStatus(msg); err != nil {
			return nil, err
		}
		if r.pullMessagesLeft == 0 {
			if err := r.requestMessages(); err != nil {
				return nil, err
			}
		}
	}
}

// takeFromServer returns what the server has sent next: a message of the log or a status. It
// returns nil if there is none and wait is not set.
func (r *reader) takeFromServer(ctx context.Context, wait bool) (*nats.Msg, error) {
	select {
	case msg := <-r.msgs:
		return msg, nil
	default:
	}
	if !wait {
		return nil, nil
	}

	// Only waiting counts as silence, and not the time that the caller took since the last message.
	r.silenceTimer.Reset(silenceTimeout)
	select {
	case msg := <-r.msgs:
		return msg, nil
	case <-r.connState.ctx.Done():
		return nil, fmt.Errorf("%w: the connection changed", errInterrupted)
	case <-r.pullForbidden.Done():
		return nil, fmt.Errorf("%w: %w", errInterrupted, context.Cause(r.pullForbidden)) //nolint:contextcheck // of the pulling
	case <-r.silenceTimer.C:
		return nil, fmt.Errorf("%w: no word from the server for %v", errInterrupted, silenceTimeout)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// The codes of the statuses that JetStream sends to a consumer.
const (
	statusHeartbeat  = "100"
	statusNoMessages = "404"
	statusExpired    = "408"
	statusConflict   = "409" // also the end of a pull whose limits are reached
)

// handleStatus handles a status that the server has sent about the consumer or the current pull.
func (r *reader) handleStatus(msg *nats.Msg) error {
	code, text := msg.Header.Get("Status"), msg.Header.Get("Description")
	switch {
	case code == statusHeartbeat:
		// Nothing is wrong unless the log has messages that the consumer does not deliver.
		if r.log.lastKnownSeq.Load() <= max(r.decodedSeq, r.emptyUpTo) {
			r.stuckHeartbeats = 0
			return nil
		}
		r.stuckHeartbeats++
		if r.stuckHeartbeats >= maxStuckHeartbeats {
			return fmt.Errorf("%w: the log goes to sequence %d, but the server delivers nothing after %d",
				errInterrupted, r.log.lastKnownSeq.Load(), r.decodedSeq)
		}
		return nil
	case code == statusExpired, code == statusNoMessages,
		code == statusConflict && (strings.HasPrefix(text, "Message Size") || strings.HasPrefix(text, "Batch Completed")):
		// The pull has ended. The end of the previous pull may arrive after the current pull was
		// made, and is ignored.
		if msg.Subject == r.pullInbox() {
			r.pullMessagesLeft = 0
		}
		return nil
	}
	return fmt.Errorf("%w: the server says %s %s", errInterrupted, code, text)
}

// decodeMessage decodes a message, after it has checked that no message is missing before it. It
// returns nil for a message that was read only for the warm-up or to reach the cursor.
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
	// A message that comes back after its loss was accepted stays lost.
	if _, lost := r.log.meta().acceptedHole(d.seq); lost {
		env, err = r.dec.DecodeLost(d.seq)
	} else {
		env, err = r.dec.Decode(d.seq, d.timestamp, msg.Data)
	}
	if err != nil {
		return nil, err
	}
	r.decodedSeq = d.seq
	r.stuckHeartbeats = 0
	r.log.raiseLastKnownSeq(d.seq)
	if env == nil {
		return nil, nil
	}
	if passed, err := r.skipKnown(env); passed || err != nil {
		return nil, err
	}
	env.Traces = parseTraces(msg.Header)
	return env, nil
}

// close releases what the reader holds on the server and in the archive. The next call of
// nextEnvelopes starts again after the last returned envelope.
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
	r.stopWatchingPermissions()
	if state := r.log.conn.state(); state.number == r.connState.number && state.up {
		r.log.discardConsumer(r.consumer)
	}
}

const ackPrefix = "$JS.ACK."

// delivery is the metadata of a message. JetStream encodes it in the reply subject of the message.
type delivery struct {
	seq       uint64
	ordinal   uint64
	timestamp events.Micros
}

// parseDelivery parses
// $JS.ACK.[domain.account.]stream.consumer.delivered.seq.ordinal.nanoseconds.pending[.token].
func parseDelivery(reply string) (d delivery, ok bool) {
	// Every message is parsed, so the tokens are in an array and not in a slice of the heap.
	var tokens [12]string
	n := 0
	for rest, more := reply, true; more && n < len(tokens); n++ {
		tokens[n], rest, more = strings.Cut(rest, ".")
	}

	firstNumber := 5 // the index of seq, without domain and account
	if n >= 11 {
		firstNumber = 7
	} else if n != 9 {
		return d, false
	}
	var num [3]uint64
	for i := range num {
		v, err := strconv.ParseUint(tokens[firstNumber+i], 10, 63)
		if err != nil {
			return d, false
		}
		num[i] = v
	}
	return delivery{seq: num[0], ordinal: num[1], timestamp: events.Micros(num[2] / 1000)}, true
}
