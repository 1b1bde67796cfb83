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

// ErrRange is returned for a range that ends before it begins, or after the end of the log.
var ErrRange = errors.New("export: no such range of the log")

// Earliest is the position before all events.
const Earliest = "earliest"

// readBytes is the number of bytes of envelopes that are read at a time.
const readBytes = 1 << 20

// Range is the part of the log to export.
type Range struct {
	// After is the position after which the range begins, or [Earliest].
	After string
	// Until is the last position; empty means the end of the log when the export begins.
	Until string
	// Kinds are the kinds to export; 0 means all. Segments of the archive that have only other kinds are not read.
	Kinds events.KindSet
	// LogBytes is the size of the stream, if it has the whole log; 0 means that it has not, or that the size is unknown.
	LogBytes uint64
	// LogEvents is about the number of events in a log that is archived in part; 0 means unknown.
	LogEvents uint64
	// Progress counts LogBytes or LogEvents in an export of the whole log. Otherwise it counts envelopes, from which no time left can
	// be estimated: one envelope may take a thousand times as long as another.
	Progress *replay.Progress
}

// gauge measures the progress of an export.
type gauge struct {
	p     *replay.Progress
	after uint64
	unit  string
	done  uint64
}

// messageBytes is about the size of a message of the stream without its events, eventBytes the size that each event adds to its own.
const (
	messageBytes = 64
	eventBytes   = 3
)

// gauge begins the measurement of an export between two sequences.
func (r *Range) gauge(after, until uint64) *gauge {
	g := &gauge{p: r.Progress, after: after}
	total := until - min(after, until)
	all := after == 0 && r.Until == "" && (r.Kinds == 0 || r.Kinds == events.AllKinds)
	switch {
	case all && r.LogBytes > 0:
		g.unit, total = Bytes, r.LogBytes
	case all && r.LogEvents > 0:
		g.unit, total = LogEvents, r.LogEvents
	default:
		g.unit = Envelopes
	}
	g.p.StartPhase(replay.Reading, g.unit, total)
	return g
}

// The units of the progress of an export of events. All but envelopes allow an estimate of the time left.
const (
	Bytes     = "bytes"
	LogEvents = "events"
	Envelopes = "envelopes"
)

// saw notes an event; nil means a message of a feed that has only a position. The position of an envelope's last event has no slots.
func (g *gauge) saw(ev *skeinv1.Event, at events.EventPosition) {
	switch {
	case g.unit == Envelopes:
		g.done = at.Seq - min(at.Seq, g.after)
	case ev == nil:
		return
	case g.unit == LogEvents:
		g.done++
	default:
		g.done += uint64(proto.Size(ev)) + eventBytes
		if at.Slots == 0 {
			g.done += messageBytes
		}
	}
	g.p.SetDone(g.done)
}

// covers reports whether a slot of an envelope is in the range.
func covers(after, until events.EventPosition, seq uint64, slot int) bool {
	begun := seq > after.Seq || seq == after.Seq && after.Slots > 0 && slot >= after.Slots
	return begun && (seq < until.Seq || seq == until.Seq && (until.Slots == 0 || slot < until.Slots))
}

// FromLog returns a scan of a log and its archive, through a hub that must be running.
func FromLog(log *eventlog.Log, hub *eventlog.Hub, r Range) ScanFunc {
	if r.Kinds == 0 {
		r.Kinds = events.AllKinds
	}
	return func(ctx context.Context, emit func(*Event) error) error {
		after, until, err := r.resolve(ctx, log, hub)
		if err != nil {
			return err
		}
		g := r.gauge(after.Seq, until.Seq)
		before := after.Seq
		if after.Slots > 0 {
			before-- // the range begins within this envelope
		}
		cursor, err := hub.CursorAt(ctx, before)
		if err != nil {
			return err
		}
		sub, err := hub.SubscribeBeside(cursor, r.Kinds)
		if err != nil {
			return err
		}
		defer sub.Close()
		for at := before; at < until.Seq; {
			envs, err := sub.Next(ctx, readBytes)
			if err != nil {
				return err
			}
			for _, env := range envs {
				if at = env.Seq(); at > until.Seq {
					return nil
				}
				err := envelope(log, env, after, until, r.Kinds, func(ev *Event) error {
					g.saw(ev.Proto(), ev.After)
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

// resolve returns the ends of the range in the present epoch.
func (r *Range) resolve(ctx context.Context, log *eventlog.Log, hub *eventlog.Hub) (after, until events.EventPosition, err error) {
	parse := func(name, text string) (p events.EventPosition, err error) {
		if p, err = events.ParseEventPosition(text); err == nil {
			err = log.CheckPosition(ctx, p.Position)
		}
		if err != nil {
			return p, fmt.Errorf("--%s: %w", name, err)
		}
		p.Position = log.Position(p.Seq)
		return p, nil
	}
	head, err := log.Head(ctx)
	if err != nil {
		return after, until, err
	}
	if strings.EqualFold(r.After, Earliest) {
		seq, err := hub.Earliest(ctx)
		if err != nil {
			return after, until, err
		}
		after.Position = log.Position(seq)
	} else if after, err = parse("after", r.After); err != nil {
		return after, until, err
	}
	until.Position = log.Position(head.Last)
	if r.Until != "" {
		if until, err = parse("until", r.Until); err != nil {
			return after, until, err
		}
		if until.Seq > head.Last {
			return after, until, fmt.Errorf("%w: --until is at sequence %d, the log ends at %d", ErrRange, until.Seq, head.Last)
		}
	}
	return after, until, checkRange(after, until)
}

func checkRange(after, until events.EventPosition) error {
	if after.Seq > until.Seq {
		return fmt.Errorf("%w: it would begin after sequence %d, and end at %d", ErrRange, after.Seq, until.Seq)
	}
	return nil
}

// envelope emits the wanted events of an envelope, with the positions that the change feed gives them.
func envelope(
	log *eventlog.Log, env *events.Envelope, after, until events.EventPosition, kinds events.KindSet, emit func(*Event) error,
) error {
	for i := range env.Events {
		ev := Event{Event: env.Events[i], After: events.EventPosition{Position: log.Position(env.Seq())}, Slotted: true}
		if i < len(env.Events)-1 {
			ev.After.Slots = int(ev.Slot) + 1
		}
		if !kinds.Has(ev.Kind) || !covers(after, until, env.Seq(), int(ev.Slot)) {
			continue
		}
		if err := emit(&ev); err != nil {
			return err
		}
	}
	return nil
}

const (
	// awayFor is how long a service may be unreachable, as in a restart, before the export fails.
	awayFor = 2 * time.Minute
	// tryAgain is the pause between two attempts.
	tryAgain = time.Second
)

// FromService returns a scan of the change feed of a running service. After a restart of the service it continues at its position.
func FromService(api skeinv1connect.EventServiceClient, r Range) ScanFunc {
	return func(ctx context.Context, emit func(*Event) error) error {
		w := &watching{api: api, Range: r, emit: emit}
		if err := w.ends(ctx); err != nil {
			return err
		}
		return w.run(ctx)
	}
}

// watching is the reading of a change feed up to a position.
type watching struct {
	Range
	api          skeinv1connect.EventServiceClient
	emit         func(*Event) error
	after, until events.EventPosition
	contact      time.Time
	gauge        *gauge
}

// ends resolves the ends of the range. The first message of a feed has the position at which the feed begins.
func (w *watching) ends(ctx context.Context) (err error) {
	begins := func(name, after string) (p events.EventPosition, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := w.api.Watch(ctx, connect.NewRequest(&skeinv1.WatchRequest{After: after}))
		if err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
		defer stream.Close() //nolint:errcheck // it is interrupted
		if !stream.Receive() {
			return p, fmt.Errorf("%s: %w", name, stream.Err())
		}
		return events.ParseEventPosition(stream.Msg().GetPosition())
	}
	if strings.EqualFold(w.After, Earliest) {
		w.After = strings.ToUpper(Earliest)
	}
	if w.after, err = begins("--after", w.After); err != nil {
		return err
	}
	head, err := begins("the end of the log", "")
	if err != nil {
		return err
	}
	if w.until = head; w.Until != "" {
		if w.until, err = begins("--until", w.Until); err != nil {
			return err
		}
		if w.until.Seq > head.Seq {
			return fmt.Errorf("%w: --until is at sequence %d, the log ends at %d", ErrRange, w.until.Seq, head.Seq)
		}
	}
	w.gauge = w.Range.gauge(w.after.Seq, w.until.Seq)
	return checkRange(w.after, w.until)
}

// run reads until the end of the range, through restarts of the service.
func (w *watching) run(ctx context.Context) error {
	at := w.after
	if at == w.until {
		return nil
	}
	w.contact = time.Now()
	for {
		done, err := w.follow(ctx, &at)
		var refused *connect.Error
		switch {
		case done || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case err != nil && (!errors.As(err, &refused) || refused.Code() != connect.CodeUnavailable):
			return err
		case time.Since(w.contact) > awayFor:
			return errors.Join(err, fmt.Errorf("export: the service was away for %v", awayFor))
		}
		if wait.For(ctx, tryAgain) != nil {
			return ctx.Err()
		}
	}
}

// follow reads one feed from the position at, which it advances. It is done at the end of the range, or when emit has failed.
func (w *watching) follow(ctx context.Context, at *events.EventPosition) (done bool, err error) {
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
	defer stream.Close() //nolint:errcheck // it is interrupted
	for stream.Receive() {
		m := stream.Msg()
		w.contact = time.Now()
		position, err := events.ParseEventPosition(m.GetPosition())
		if err != nil {
			return true, err
		}
		if position.Seq > w.until.Seq {
			return true, nil
		}
		if err := w.event(m, position); err != nil {
			return true, err
		}
		*at = position
		w.gauge.saw(m.GetEvent(), position)
		if position.Seq == w.until.Seq && (position.Slots == 0 || w.until.Slots > 0 && position.Slots >= w.until.Slots) {
			return true, nil
		}
	}
	return false, stream.Err()
}

// event emits the event of a message, unless the message has only a position.
func (w *watching) event(m *skeinv1.WatchResponse, after events.EventPosition) error {
	if m.GetEvent() == nil {
		return nil
	}
	ev, known := events.FromLog(m.GetEvent())
	if !known {
		return fmt.Errorf("export: the service gave an event at %s of a kind that this version does not know", m.GetPosition())
	}
	ev.Seq, ev.Time = after.Seq, events.Micros(m.GetEventTime().AsTime().UnixMicro())
	out := Event{Event: ev, After: after}
	if after.Slots > 0 {
		out.Slot, out.Slotted = uint16(after.Slots-1), true
	}
	if until := w.until; after.Seq == until.Seq && until.Slots > 0 && (after.Slots == 0 || after.Slots > until.Slots) {
		return nil // after the end, within the last envelope
	}
	return w.emit(&out)
}
