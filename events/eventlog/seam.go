package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// origin is where reading goes on after a cursor.
type origin struct {
	// cur is the cursor as the log has it now.
	cur events.Cursor
	// past: what comes next is read in the archive, after cur. Else in the stream, by a decoder made from the cursor from.
	past bool
	from events.Cursor
	// seed: the decoder must be told the event ids of before the epoch.
	seed bool
	// relearn: of what is up to from, the end of the archive, the stream lacks something to warm up from.
	relearn bool
}

// locate finds out where a reader goes on after a cursor, and that the log holds what the cursor was taken from.
func (l *Log) locate(ctx context.Context, c events.Cursor) (origin, error) {
	for {
		meta := l.meta()
		o, err := l.locateIn(ctx, c)
		if l.meta() == meta { // else the log went on in a new epoch meanwhile
			return o, err
		}
	}
}

func (l *Log) locateIn(ctx context.Context, c events.Cursor) (origin, error) {
	c, err := l.Adopt(c)
	if err != nil {
		return origin{}, err
	}
	o, err := l.locateBeside(ctx, c)
	// A cluster that has just elected a leader may not tell the whole truth at once; nor may an archive that another
	// process writes.
	unsure := l.server == nil && (errors.Is(err, events.ErrLogShorter) || errors.Is(err, events.ErrNoLog)) ||
		l.past != nil && errors.Is(err, events.ErrTrimmed)
	if unsure {
		if wait.For(ctx, confirmAfter) != nil {
			return origin{}, ctx.Err()
		}
		o, err = l.locateBeside(ctx, c)
	}
	return o, err
}

// locateBeside finds the place beside the holes of the stream: each that it comes upon is noted.
func (l *Log) locateBeside(ctx context.Context, c events.Cursor) (o origin, err error) {
	for err = errHole; errors.Is(err, errHole) && ctx.Err() == nil; {
		o, err = l.locateHeld(ctx, c)
	}
	return o, err
}

func (l *Log) locateHeld(ctx context.Context, c events.Cursor) (origin, error) {
	// The end of the archive is asked for first: while the stream is looked at the archive may only grow.
	end, err := l.pastEnd()
	if err != nil {
		return origin{}, err
	}
	stream, err := l.stream(ctx)
	if err != nil {
		return origin{}, err
	}
	state := stream.CachedInfo().State
	if c.Seq > state.LastSeq {
		return origin{}, fmt.Errorf("%w: it ends at sequence %d, the cursor is at %d: the log lost events or is an older "+
			"copy; restore the right log, or rebuild the store from this one", events.ErrLogShorter, state.LastSeq, c.Seq)
	}
	if o, ok := l.inStream(c, state); ok {
		return l.confirm(ctx, stream, o)
	}
	if c.Seq < end.Seq {
		return origin{cur: c, past: true}, nil
	}
	// At the end of the archive, or after it with a cursor that does not tell where to warm up: the stream is read after
	// the end, and what is up to the cursor is passed over.
	if c.Seq == end.Seq && c.LastTime != end.LastTime {
		return origin{}, fmt.Errorf("%w: the last time given at sequence %d is %d, not %d: restore the right archive, or "+
			"rebuild the store", events.ErrRewritten, c.Seq, end.LastTime, c.LastTime)
	}
	o, ok := l.inStream(end, state)
	if !ok && l.relearnable(end, l.begins(state)) {
		o, ok = origin{cur: end, from: end, relearn: true}, true
	}
	if ok && (c.Archival() || c.Seq == end.Seq || o.relearn) {
		return l.atEnd(ctx, stream, o, c)
	}
	if err := l.headless(ctx, state, end); err != nil {
		return origin{}, err
	}
	if c.Seq == end.Seq || l.past == nil || c.Archival() {
		return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs what is before, and the archive "+
			"ends at %d: bring the archive back, or restore the log", events.ErrTrimmed, state.FirstSeq, c.Seq, end.Seq)
	}
	return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs %d, and the archive ends at %d: rebuild "+
		"the store, from the archive and the log", events.ErrTrimmed, state.FirstSeq, c.Seq, events.NewDecoder(c).WarmFrom(), end.Seq)
}

// atEnd confirms a place at the end of the archive, for a reader that is there or, after it, at a cursor of the stream.
func (l *Log) atEnd(ctx context.Context, stream jetstream.Stream, o origin, c events.Cursor) (origin, error) {
	end := o.from
	if l.begins(stream.CachedInfo().State) <= end.Seq || !o.relearn { // else the stream lacks the end itself
		if _, err := l.confirm(ctx, stream, o); err != nil {
			return origin{}, fmt.Errorf("events: the end of the archive: %w", err)
		}
	}
	if c.Seq == end.Seq {
		return o, nil
	}
	o.cur = c
	if c.Archival() {
		return o, nil
	}
	return o, l.checkMessage(ctx, stream, c)
}

// headless finds the hole between the end of the archive and the beginning of the stream: nothing is trimmed that is not
// archived. Without an archive, whoever has it may have trimmed the stream.
func (l *Log) headless(ctx context.Context, state jetstream.StreamState, end events.Cursor) error {
	first, before := max(end.Seq+1, l.meta().first), l.begins(state)
	if l.past == nil || first >= before {
		return nil
	}
	now, err := l.reloadedEnd(ctx, first)
	if err != nil {
		return err
	}
	if now >= first {
		return errHole // it has grown: look again
	}
	return l.noteMissing(SeqRange{first, before - 1})
}

// pastEnd returns the end of the archive as the present epoch writes it; the start of the log when nothing is archived.
func (l *Log) pastEnd() (events.Cursor, error) {
	if l.past == nil {
		return l.Start(), nil
	}
	end := l.past.End()
	if end.Seq == 0 {
		return l.Start(), nil
	}
	end, err := l.Adopt(end)
	if err != nil {
		return end, fmt.Errorf("events: the end of the archive: %w", err)
	}
	return end, nil
}

// begins returns where the stream begins that has no holes beside the archive, and is of the present epoch.
func (l *Log) begins(state jetstream.StreamState) uint64 {
	first := state.FirstSeq
	if lost, ok := l.meta().accepted(first - 1); ok { // it was never trimmed
		first = lost.From
	}
	return max(first, l.meta().first, l.holed.Load()+1)
}

// inStream reports whether the stream alone can serve a reader at a cursor of the present epoch.
func (l *Log) inStream(c events.Cursor, state jetstream.StreamState) (o origin, ok bool) {
	o = origin{cur: c, from: c}
	begins := l.begins(state)
	warm := events.NewDecoder(c).WarmFrom()
	switch {
	case c.Seq+1 == l.meta().first: // the start of the epoch
		o.from, warm = l.EpochStart(), l.meta().first
		ok = begins == l.meta().first
	case c.Seq == 0 || c.Archival():
	default:
		ok = warm >= begins
	}
	o.seed = warm == l.meta().first && len(l.meta().predecessors) > 0
	if o.seed && l.past == nil {
		ok = false // what was seen before the epoch is known to the archive only
	}
	return o, ok
}

// confirm checks that the stream holds what the cursor was taken from.
func (l *Log) confirm(ctx context.Context, stream jetstream.Stream, o origin) (origin, error) {
	if o.cur.Seq+1 == l.meta().first {
		if o.cur.LastTime != l.meta().lastTime {
			return o, fmt.Errorf("%w: the last time given before epoch %d is %d, not %d: restore the right log, or rebuild "+
				"the store", events.ErrRewritten, l.meta().epoch, l.meta().lastTime, o.cur.LastTime)
		}
		return o, nil
	}
	return o, l.checkMessage(ctx, stream, o.cur)
}

// decoder makes the decoder for reading the stream.
func (l *Log) decoder(ctx context.Context, o origin) (*events.Decoder, error) {
	if o.relearn {
		return l.relearn(ctx, o.from)
	}
	d := events.NewDecoder(o.from)
	if !o.seed {
		return d, nil
	}
	repeats, err := l.past.Repeats(ctx, l.meta().epoch)
	if errors.Is(err, events.ErrPastDamaged) {
		// What they decided is archived, as far as the archive goes.
		if noted, failed := l.noteHole(l.meta().first); noted || failed != nil {
			return nil, errors.Join(errLost, errHole, failed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("events: read the event ids seen before the epoch: %w", err)
	}
	d.Seed(repeats)
	return d, nil
}

// begin finds where to go on after the cursor, and prepares to.
func (r *reader) begin(ctx context.Context) error {
	if goesOn, err := r.held(ctx); goesOn || err != nil {
		return err
	}
	o, err := r.log.locate(ctx, r.cur)
	if err != nil {
		return err
	}
	if o.past {
		return r.beginPast(ctx, o.cur)
	}
	if r.dec, err = r.log.decoder(ctx, o); err != nil {
		return err
	}
	r.fed = r.dec.WarmFrom() - 1
	// A cursor of before the end of the archive that is given up for it, and one that is passed over to.
	r.cur, r.passing = o.cur, o.cur.Seq > o.from.Seq
	return nil
}

// held reports whether the stream still holds what the reader, which was interrupted, has read and goes on with.
func (r *reader) held(ctx context.Context) (bool, error) {
	if r.dec == nil || r.passing || r.cur.Archival() || r.cur.Seq+1 == r.log.meta().first {
		return false, nil
	}
	stream, err := r.log.stream(ctx)
	if err != nil {
		return false, err
	}
	state := stream.CachedInfo().State
	if begins := r.log.begins(state); begins > r.fed+1 || state.FirstSeq > r.cur.Seq || r.cur.Seq > state.LastSeq {
		return false, nil // locate knows what this means
	}
	if err := r.log.checkMessage(ctx, stream, r.cur); !errors.Is(err, errHole) {
		return true, err
	}
	return false, nil
}

// beginPast begins to read the archive.
func (r *reader) beginPast(ctx context.Context, from events.Cursor) error {
	// The reading outlives the call that begins it.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	giveUp := context.AfterFunc(ctx, end)
	past, err := r.log.past.Read(life, from, r.kinds)
	if !giveUp() && err == nil {
		past.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		return fmt.Errorf("events: read the archive after sequence %d: %w", from.Seq, err)
	}
	r.cur, r.dec, r.past, r.pastLife, r.endPast, r.moved = from, nil, past, life, end, false
	return nil
}

// readPast returns the next envelopes of the archive; none at its end: the next call goes on in the stream.
func (r *reader) readPast(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	stop := context.AfterFunc(ctx, r.endPast)
	envs, err := r.past.Next(r.pastLife, maxBytes) //nolint:contextcheck // what is opened for it lives on for the next call
	if !stop() && err == nil && len(envs) == 0 {
		err = ctx.Err()
	}
	if err != nil {
		r.close()
	}
	if errors.Is(err, io.EOF) {
		if !r.moved && r.cur.Seq < r.log.past.End().Seq {
			return nil, fmt.Errorf("%w: it ends at sequence %d, but says that there is nothing after %d", events.ErrPastDamaged,
				r.log.past.End().Seq, r.cur.Seq)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("events: read the archive after sequence %d: %w", r.cur.Seq, err)
	}
	envs, err = r.adoptAll(envs)
	if err != nil {
		r.close()
	}
	return envs, err
}

// adoptAll checks the order of envelopes of the archive and gives them cursors of the present epoch.
func (r *reader) adoptAll(envs []*events.Envelope) ([]*events.Envelope, error) {
	for i, env := range envs {
		c, err := r.log.Adopt(env.Cursor)
		if err != nil {
			return nil, fmt.Errorf("%w: envelope %d: %w", events.ErrPastDamaged, env.Seq(), err)
		}
		if c.Seq <= r.cur.Seq || c.LastTime < r.cur.LastTime {
			return nil, fmt.Errorf("%w: sequence %d and time %d after %d and %d", events.ErrPastDamaged, c.Seq, c.LastTime,
				r.cur.Seq, r.cur.LastTime)
		}
		if c != env.Cursor { // written in an epoch before
			adopted := *env
			adopted.Cursor = c
			envs[i] = &adopted
		}
		r.cur, r.moved = c, true
	}
	return envs, nil
}

// pass reports whether an envelope is one that the reader's cursor is after, and checks the one at the cursor.
func (r *reader) pass(env *events.Envelope) (bool, error) {
	switch {
	case !r.passing:
		return false, nil
	case env.Seq() < r.cur.Seq:
		return true, nil
	case env.Seq() > r.cur.Seq || !env.Cursor.Agrees(r.cur) && !r.dec.PassedLost():
		return false, fmt.Errorf("%w: sequence %d differs: rebuild the store", events.ErrRewritten, r.cur.Seq)
	}
	r.passing, r.cur = false, env.Cursor
	return true, nil
}

// ahead looks whether the stream has what comes next. After a hole at its end nothing would be delivered.
func (r *reader) ahead(ctx context.Context) error {
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	next, last := r.fed+1, stream.CachedInfo().State.LastSeq
	if next > last {
		return nil
	}
	if there, err := r.log.hasMessage(ctx, stream, next); there || err != nil {
		return err
	}
	msg, err := r.log.messageFrom(ctx, stream, next)
	switch {
	case errors.Is(err, ErrNoMessage):
		return r.gap(ctx, last+1)
	case err != nil:
		return err
	}
	return r.gap(ctx, msg.Sequence)
}

// gap finds out what it means that the stream goes on with a sequence later than the next, and passes over what is lost and
// accepted. [ErrHole]: something else is lost.
func (r *reader) gap(ctx context.Context, seq uint64) error {
	for r.fed+1 < seq {
		if accepted, ok := r.log.meta().accepted(r.fed + 1); ok {
			if err := r.passLost(min(accepted.To, seq-1)); err != nil {
				return err
			}
			continue
		}
		meta := r.log.meta()
		if err := r.missing(ctx, seq); err != nil && r.log.meta() == meta {
			return err
		}
	}
	return nil
}

// passLost passes over an accepted hole.
func (r *reader) passLost(to uint64) error {
	for r.fed < to {
		env, err := r.dec.Lost(r.fed + 1)
		if err != nil {
			return err
		}
		r.fed++
		r.log.noteLast(r.fed)
		if env == nil {
			continue
		}
		if passed, err := r.pass(env); err != nil {
			return err
		} else if !passed {
			r.lost = append(r.lost, env)
		}
	}
	return nil
}

// missing says why the stream did not give the next sequence, but a later one.
func (r *reader) missing(ctx context.Context, seq uint64) error {
	next := r.fed + 1
	stream, err := r.log.stream(ctx)
	if err != nil {
		return err
	}
	if stream.CachedInfo().State.FirstSeq > next {
		return fmt.Errorf("%w: the stream was trimmed beyond sequence %d while it was read", errLost, r.fed)
	}
	switch there, err := r.log.hasMessage(ctx, stream, next); {
	case err != nil:
		return err
	case there: // a replica is ahead of the leader in trimming, or behind in delivering
		return fmt.Errorf("%w: sequence %d was not delivered", errLost, next)
	}
	if noted, err := r.log.noteHoles(ctx, next, seq-1); noted || err != nil {
		return errors.Join(errLost, errHole, err)
	}
	hole, err := r.log.holeFrom(ctx, stream, next, seq)
	if err != nil {
		return err
	}
	return r.log.noteMissing(hole)
}
