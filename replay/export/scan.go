package export

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
	"github.com/skein-feed/skein/replay"
)

// ErrRange means that a range ends before it begins, or after the end of the log.
var ErrRange = errors.New("export: no such range of the log")

// Earliest stands for the position before all events.
const Earliest = "earliest"

// maxReadBytes is how many bytes of envelopes are read at a time.
const maxReadBytes = 1 << 20

// Range is the part of the log that is exported.
type Range struct {
	// After is the position after which the range begins, or [Earliest].
	After string
	// Until is the last position; empty means the end of the log when the export begins.
	Until string
	// Kinds are the kinds to export; 0 means all. Segments of the archive that only have other
	// kinds are not read.
	Kinds events.KindSet
	// LogBytes is the size of the stream if it contains the whole log; 0 means that it does not, or
	// that the size is unknown.
	LogBytes uint64
	// LogEvents is about the number of events in a log that is partly archived; 0 means unknown.
	LogEvents uint64
	// Progress counts LogBytes or LogEvents in an export of the whole log. Otherwise it counts
	// envelopes. The remaining time cannot be estimated from those, because one envelope may take a
	// thousand times as long as another. It may be nil.
	Progress *replay.Progress
}

// readProgress measures the progress of an export in one unit.
type readProgress struct {
	progress *replay.Progress
	after    uint64 // the sequence after which the export begins
	unit     string
	done     uint64
}

const (
	// messageOverhead is about how many bytes a message of the stream has in addition to its
	// events.
	messageOverhead = 64
	// eventOverhead is how many bytes each event adds to its own size in a message.
	eventOverhead = 3
)

// startProgress chooses the unit for an export between two sequences and starts the phase.
func (r *Range) startProgress(after, until uint64) *readProgress {
	p := &readProgress{progress: r.Progress, after: after, unit: Envelopes}
	total := until - min(after, until)
	isWholeLog := after == 0 && r.Until == "" && (r.Kinds == 0 || r.Kinds == events.AllKinds)
	switch {
	case isWholeLog && r.LogBytes > 0:
		p.unit = Bytes
		total = r.LogBytes
	case isWholeLog && r.LogEvents > 0:
		p.unit = LogEvents
		total = r.LogEvents
	}
	p.progress.StartPhase(replay.Reading, p.unit, total)
	return p
}

// The units of the progress of an export of events. The remaining time can be estimated from Bytes
// and LogEvents only.
const (
	Bytes     = "bytes"
	LogEvents = "events"
	Envelopes = "envelopes"
)

// countEvent adds an event at a position to the progress. A nil event stands for a message of the
// feed that only has a position.
func (p *readProgress) countEvent(ev *skeinv1.Event, at events.EventPosition) {
	switch {
	case p.unit == Envelopes:
		p.done = at.Seq - min(at.Seq, p.after)
	case ev == nil:
		return
	case p.unit == LogEvents:
		p.done++
	default:
		p.done += uint64(proto.Size(ev)) + eventOverhead
		// The position of the last event in an envelope has no slots. Count the rest of the message
		// with that event.
		if at.Slots == 0 {
			p.done += messageOverhead
		}
	}
	p.progress.SetDone(p.done)
}

// isInRange reports whether the event in this slot of the envelope at seq is in the range between
// two positions. If a position has slots, it is within an envelope: that many slots of the envelope
// come before it.
func isInRange(after, until events.EventPosition, seq uint64, slot int) bool {
	// A position without slots is at the end of its envelope.
	isAfter := seq > after.Seq
	if seq == after.Seq {
		isAfter = after.Slots > 0 && slot >= after.Slots
	}
	isBefore := seq < until.Seq
	if seq == until.Seq {
		isBefore = until.Slots == 0 || slot < until.Slots
	}
	return isAfter && isBefore
}

// FromLog returns a scan of a log and its archive. It reads through the hub, which must be running.
func FromLog(log *eventlog.Log, hub *eventlog.Hub, r Range) ScanFunc {
	if r.Kinds == 0 {
		r.Kinds = events.AllKinds
	}
	return func(ctx context.Context, emit func(*Event) error) error {
		after, until, err := r.resolve(ctx, log, hub)
		if err != nil {
			return err
		}

		progress := r.startProgress(after.Seq, until.Seq)
		before := after.Seq
		if after.Slots > 0 {
			before-- // the range begins within this envelope
		}

		cursor, err := hub.CursorAt(ctx, before)
		if err != nil {
			return err
		}
		sub, err := hub.SubscribeDetached(cursor, r.Kinds)
		if err != nil {
			return err
		}
		defer sub.Close()

		for at := before; at < until.Seq; {
			envs, err := sub.Next(ctx, maxReadBytes)
			if err != nil {
				return err
			}
			for _, env := range envs {
				at = env.Seq()
				if at > until.Seq {
					return nil
				}
				err := emitEnvelope(log, env, after, until, r.Kinds, func(ev *Event) error {
					progress.countEvent(ev.Proto(), ev.After)
					return emit(ev)
				})
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// resolve returns the two ends of the range as positions in the present epoch of the log.
func (r *Range) resolve(ctx context.Context, log *eventlog.Log, hub *eventlog.Hub) (after, until events.EventPosition, err error) {
	parse := func(flag, text string) (p events.EventPosition, err error) {
		p, err = events.ParseEventPosition(text)
		if err == nil {
			err = log.CheckPosition(ctx, p.Position)
		}
		if err != nil {
			return p, fmt.Errorf("--%s: %w", flag, err)
		}
		p.Position = log.Position(p.Seq)
		return p, nil
	}

	// The export ends where the log ends now, so that it ends at all while events are published.
	head, err := log.Head(ctx)
	if err != nil {
		return after, until, err
	}

	if strings.EqualFold(r.After, Earliest) {
		seq, err := hub.EarliestSeq(ctx)
		if err != nil {
			return after, until, err
		}
		after.Position = log.Position(seq)
	} else if after, err = parse("after", r.After); err != nil {
		return after, until, err
	}

	until.Position = log.Position(head.Last)
	if r.Until != "" {
		until, err = parse("until", r.Until)
		if err != nil {
			return after, until, err
		}
		if until.Seq > head.Last {
			return after, until, fmt.Errorf("%w: --until is at sequence %d, the log ends at %d", ErrRange, until.Seq, head.Last)
		}
	}
	return after, until, checkRange(after, until)
}

// checkRange returns [ErrRange] if the range ends before it begins.
func checkRange(after, until events.EventPosition) error {
	if after.Seq > until.Seq {
		return fmt.Errorf("%w: it would begin after sequence %d, and end at %d", ErrRange, after.Seq, until.Seq)
	}
	return nil
}

// emitEnvelope emits the events of an envelope that are in the range, with the positions that the
// change feed gives them.
func emitEnvelope(
	log *eventlog.Log, env *events.Envelope, after, until events.EventPosition, kinds events.KindSet, emit func(*Event) error,
) error {
	for i := range env.Events {
		ev := Event{
			Event:   env.Events[i],
			After:   events.EventPosition{Position: log.Position(env.Seq())},
			Slotted: true,
		}
		// The position after the last event is the one after the whole envelope, which has no
		// slots.
		if i < len(env.Events)-1 {
			ev.After.Slots = int(ev.Slot) + 1
		}
		if !kinds.Has(ev.Kind) || !isInRange(after, until, env.Seq(), int(ev.Slot)) {
			continue
		}
		if err := emit(&ev); err != nil {
			return err
		}
	}
	return nil
}

const (
	// maxOutage is how long a service may be out of reach, for example during a restart, before the
	// export fails.
	maxOutage = 2 * time.Minute
	// retryDelay is the pause between two attempts to reach the service.
	retryDelay = time.Second
)

// FromService returns a scan of the change feed of a running service. If the service restarts, the
// scan continues where it was.
func FromService(api skeinv1connect.EventServiceClient, r Range) ScanFunc {
	return func(ctx context.Context, emit func(*Event) error) error {
		w := &feedReader{api: api, Range: r, emit: emit}
		if err := w.resolveRange(ctx); err != nil {
			return err
		}
		return w.readAll(ctx)
	}
}

// feedReader reads a change feed up to a position.
type feedReader struct {
	Range
	api          skeinv1connect.EventServiceClient
	emit         func(*Event) error
	after, until events.EventPosition
	lastContact  time.Time // when the service last sent something
	progress     *readProgress
}

// resolveRange finds the two ends of the range. It asks the service: the first message of a feed
// contains the position at which the feed begins.
func (w *feedReader) resolveRange(ctx context.Context) (err error) {
	feedStart := func(name, after string) (p events.EventPosition, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := w.api.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{After: after}))
		if err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
		defer stream.Close() //nolint:errcheck // the stream has not ended, so Close fails
		if !stream.Receive() {
			return p, fmt.Errorf("%s: %w", name, stream.Err())
		}
		return events.ParseEventPosition(stream.Msg().GetPosition())
	}

	if strings.EqualFold(w.After, Earliest) {
		w.After = strings.ToUpper(Earliest)
	}
	w.after, err = feedStart("--after", w.After)
	if err != nil {
		return err
	}
	head, err := feedStart("the end of the log", "")
	if err != nil {
		return err
	}
	w.until = head
	if w.Until != "" {
		w.until, err = feedStart("--until", w.Until)
		if err != nil {
			return err
		}
		if w.until.Seq > head.Seq {
			return fmt.Errorf("%w: --until is at sequence %d, the log ends at %d", ErrRange, w.until.Seq, head.Seq)
		}
	}

	w.progress = w.startProgress(w.after.Seq, w.until.Seq)
	return checkRange(w.after, w.until)
}

// readAll reads up to the end of the range. If the service restarts, readAll continues where it
// was.
func (w *feedReader) readAll(ctx context.Context) error {
	at := w.after
	if at == w.until {
		return nil
	}

	w.lastContact = time.Now()
	for {
		done, err := w.readFeed(ctx, &at)
		// A service that stops ends the feed without an error, or cannot be reached while it
		// restarts. Any other error would come again.
		mayBeRestarting := err == nil || connect.CodeOf(err) == connect.CodeUnavailable
		switch {
		case done || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case !mayBeRestarting:
			return err
		case time.Since(w.lastContact) > maxOutage:
			return errors.Join(err, fmt.Errorf("export: the service was away for %v", maxOutage))
		}
		if wait.For(ctx, retryDelay) != nil {
			return ctx.Err()
		}
	}
}

// readFeed opens one feed after the position at, and reads it. It advances at. done reports that
// the end of the range was reached, or that emit has failed.
func (w *feedReader) readFeed(ctx context.Context, at *events.EventPosition) (done bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	req := &skeinv1.WatchRequest{After: at.String()}
	for _, k := range w.Kinds.Slice() {
		req.Kinds = append(req.Kinds, k.String())
	}

	stream, err := w.api.Watch(ctx, connect.NewRequest(req))
	if err != nil {
		return false, err
	}
	defer stream.Close() //nolint:errcheck // the stream has not ended, so Close fails
	for stream.Receive() {
		m := stream.Msg()
		w.lastContact = time.Now()

		position, err := events.ParseEventPosition(m.GetPosition())
		if err != nil {
			return true, err
		}
		if position.Seq > w.until.Seq {
			return true, nil
		}

		if err := w.emitMessage(m, position); err != nil {
			return true, err
		}
		*at = position
		w.progress.countEvent(m.GetEvent(), position)
		// A position without slots is at the end of its envelope.
		isEndOfEnvelope := position.Slots == 0
		isPastLastSlot := w.until.Slots > 0 && position.Slots >= w.until.Slots
		if position.Seq == w.until.Seq && (isEndOfEnvelope || isPastLastSlot) {
			return true, nil
		}
	}
	return false, stream.Err()
}

// emitMessage emits the event of a message. A message without an event only has a position.
func (w *feedReader) emitMessage(m *skeinv1.WatchResponse, after events.EventPosition) error {
	if m.GetEvent() == nil {
		return nil
	}
	ev, known := events.FromLog(m.GetEvent())
	if !known {
		return fmt.Errorf("export: the service gave an event at %s of a kind that this version does not know", m.GetPosition())
	}

	ev.Seq = after.Seq
	ev.Time = events.Micros(m.GetEventTime().AsTime().UnixMicro())
	out := Event{Event: ev, After: after}
	if after.Slots > 0 {
		out.Slot = uint16(after.Slots - 1)
		out.Slotted = true
	}
	// The range may end within this envelope. The feed sends the events of an envelope that come
	// after its end, too.
	until := w.until
	if after.Seq == until.Seq && until.Slots > 0 && (after.Slots == 0 || after.Slots > until.Slots) {
		return nil
	}
	return w.emit(&out)
}
