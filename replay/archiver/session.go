package archiver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/eventlog"
)

// hold waits for the lease and archives while it has it. Meanwhile it reads the manifest again from time to time: readers
// here are to know what another process seals.
func (a *Archiver) hold(ctx context.Context) error {
	waiting, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- a.follow(waiting) }()
	err := a.opt.Log.WhileLeased(ctx, leaseName, a.opt.LeaseTTL, func(ctx context.Context) error {
		stop()
		if err := <-ended; err != nil {
			return err
		}
		ended <- nil
		return a.lead(ctx)
	})
	stop()
	return errors.Join(err, <-ended)
}

const leaseName = "archive"

// follow keeps the manifest up to date, and refuses what is asked, until the context ends.
func (a *Archiver) follow(ctx context.Context) error {
	for a.wait(ctx, lookEvery) {
		err := a.opt.Archive.Reload(ctx)
		if err != nil && hopeless(err) {
			return err
		}
		if err == nil && a.isStuck() { // another process may have sealed what this one could not
			a.noteContinued()
		}
	}
	return nil
}

// lead archives as the one process that does.
func (a *Archiver) lead(ctx context.Context) error {
	if err := a.opt.Archive.Reload(ctx); err != nil {
		return err
	}
	if err := a.opt.Archive.Sweep(ctx); err != nil {
		return err
	}
	s, err := a.begin(ctx)
	if err != nil {
		return err
	}
	defer s.sub.Close()
	ctx, cancel := context.WithCancel(ctx)
	var merging sync.WaitGroup
	merging.Go(func() { a.merge(ctx) })
	defer merging.Wait()
	defer cancel()
	a.note(func(s *Status) { s.Running = true })
	a.noteContinued()
	defer a.note(func(s *Status) { s.Running, s.Waiting = false, 0 })
	return s.run(ctx)
}

// session is the archiving under one lease.
type session struct {
	*Archiver
	sub    *eventlog.Subscription
	writer *archive.Writer
	// raw is how many bytes of the stream the writer holds, since when it holds any.
	raw   int64
	since time.Time
	// waiting are calls of Now that are not answered yet.
	waiting []request
	looked  time.Time
}

func (a *Archiver) begin(ctx context.Context) (*session, error) {
	from := a.opt.Archive.End()
	if from.Seq == 0 {
		from = a.opt.Log.Start()
	}
	if err := a.opt.Log.CheckCursor(ctx, from); err != nil {
		return nil, fmt.Errorf("the log does not continue where its archive ends: %w", err)
	}
	if err := a.turn(ctx); err != nil {
		return nil, err
	}
	sub, err := a.opt.Hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return &session{Archiver: a, sub: sub, writer: a.opt.Archive.Writer()}, nil
}

// turn tells the archive of an epoch that the log has begun where the archive ends (see [events.Log.NextEpoch]).
func (a *Archiver) turn(ctx context.Context) error {
	end, start := a.opt.Archive.End(), a.opt.Log.EpochStart()
	if now := a.opt.Archive.Epoch(); now == 0 || now >= start.Epoch || end.Seq != start.Seq {
		return nil
	}
	return a.opt.Archive.BeginEpoch(ctx, start.Epoch, end)
}

// run gathers and seals until the context ends or something fails.
func (s *session) run(ctx context.Context) (err error) {
	defer func() {
		for _, r := range s.waiting {
			r.done <- errors.Join(ErrNotRunning, err)
		}
	}()
	for {
		if err := s.sealInTime(ctx); err != nil {
			return err
		}
		if time.Since(s.looked) >= lookEvery {
			s.looked = time.Now()
			if err := s.trim(ctx); err != nil {
				return err
			}
		}
		envs, err := s.next(ctx)
		if err != nil {
			return err
		}
		if err := s.add(ctx, envs); err != nil {
			return err
		}
	}
}

// sealInTime seals what is old enough or was asked for.
func (s *session) sealInTime(ctx context.Context) error {
	asked := false
	for _, r := range s.waiting {
		asked = asked || r.seq <= s.writer.End().Seq
	}
	if asked || s.raw > 0 && time.Since(s.since) >= s.opt.SegmentAge {
		return s.seal(ctx)
	}
	return nil
}

// next waits for envelopes, or until something else is due; then there are none.
func (s *session) next(ctx context.Context) ([]*events.Envelope, error) {
	wait := max(0, lookEvery-time.Since(s.looked))
	if s.raw > 0 {
		wait = min(wait, s.opt.SegmentAge-time.Since(s.since))
	}
	within, cancel := context.WithTimeout(ctx, max(wait, time.Millisecond))
	defer cancel()
	type read struct {
		envs []*events.Envelope
		err  error
	}
	got := make(chan read, 1)
	go func() {
		envs, err := s.sub.Next(within, readBytes)
		got <- read{envs, err}
	}()
	for {
		select {
		case r := <-s.asked:
			s.waiting = append(s.waiting, r)
			if r.seq <= s.writer.End().Seq {
				cancel() // nothing has to come first
			}
		case r := <-got:
			if r.err != nil && ctx.Err() == nil && (errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, context.Canceled)) {
				r.err = nil
			}
			return r.envs, r.err
		}
	}
}

// add takes envelopes, and seals wherever there is enough.
func (s *session) add(ctx context.Context, envs []*events.Envelope) error {
	for len(envs) > 0 {
		if before := s.writer.End(); envs[0].Cursor.Epoch > before.Epoch && before.Epoch != 0 {
			if err := s.seal(ctx); err != nil {
				return err
			}
		}
		err := s.writer.Add(envs[0])
		switch {
		case errors.Is(err, archive.ErrFull):
			if err := s.seal(ctx); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if s.raw == 0 {
			s.since = time.Now()
		}
		s.raw += int64(envs[0].Bytes)
		envs = envs[1:]
		if s.raw >= s.opt.SegmentBytes {
			if err := s.seal(ctx); err != nil {
				return err
			}
		}
	}
	s.note(func(st *Status) { st.Waiting = s.writer.Len() })
	return nil
}

// seal seals what there is, answers who waited for it, and trims.
func (s *session) seal(ctx context.Context) error {
	if s.writer.Len() > 0 {
		sealed, err := s.writer.Seal(ctx)
		if err != nil {
			s.noteStuck()
			return fmt.Errorf("seal the segment from sequence %d on: %w", s.opt.Archive.End().Seq+1, err)
		}
		s.noteContinued()
		s.writer, s.raw = s.opt.Archive.Writer(), 0
		s.note(func(st *Status) { st.Waiting, st.SealTime = 0, time.Now() })
		if told := s.opt.Sealed; told != nil {
			told(sealed)
		}
	}
	before := s.opt.Archive.Epoch()
	if err := s.turn(ctx); err != nil {
		return err
	}
	if s.opt.Archive.Epoch() != before {
		s.writer = s.opt.Archive.Writer()
	}
	err := s.trim(ctx)
	end := s.opt.Archive.End().Seq
	rest := s.waiting[:0]
	for _, r := range s.waiting {
		if r.seq <= end {
			r.done <- err
			continue
		}
		rest = append(rest, r)
	}
	s.waiting = rest
	return err
}

// trim trims the stream up to the lowest of: one horizon below the end of the archive, one horizon below the cursor of every
// store of this process, and what is as old as the retention. Stores of other processes that are further behind read the
// archive.
func (s *session) trim(ctx context.Context) error {
	end := s.opt.Archive.End()
	if s.opt.Retention < 0 || end.WarmSeq == 0 {
		return nil
	}
	upTo := end.WarmSeq - 1
	if s.opt.Cursors != nil {
		for _, c := range s.opt.Cursors() {
			// One that reads the archive now needs nothing of the stream before its end.
			if c.WarmSeq > 0 {
				upTo = min(upTo, c.WarmSeq-1)
			}
		}
	}
	head, err := s.opt.Log.Head(ctx)
	if err != nil || upTo < head.First {
		return err
	}
	old, err := s.opt.Log.SeqBefore(ctx, time.Now().Add(-s.opt.Retention))
	if err != nil {
		return err
	}
	upTo = min(upTo, old)
	if upTo < head.First {
		return nil
	}
	if _, err := s.opt.Log.Trim(ctx, upTo); err != nil {
		return fmt.Errorf("trim the stream up to sequence %d: %w", upTo, err)
	}
	s.note(func(st *Status) { st.Trimmed = upTo })
	return nil
}
