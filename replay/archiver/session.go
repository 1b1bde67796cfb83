package archiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/eventlog"
)

// archiveWithLease waits for the lease, and archives while it has it. While it waits, it reloads
// the manifest from time to time, so that readers in this process know what another process has
// sealed.
func (a *Archiver) archiveWithLease(ctx context.Context) error {
	waitForLease := func(ctx context.Context, whileHeld func(context.Context) error) error {
		return a.opts.Log.RunWithLease(ctx, leaseName, a.opts.LeaseTTL, whileHeld)
	}
	return reloadUntilHeld(ctx, a.reloadManifest, waitForLease, a.archiveAsHolder)
}

// reloadUntilHeld runs reload until waitForLease has the lease, and then runs archive. If reload
// fails, reloadUntilHeld stops waiting for the lease and returns the error: what keeps this process
// from reading the manifest would also keep it from archiving.
func reloadUntilHeld(
	ctx context.Context, reload func(context.Context) error,
	waitForLease func(ctx context.Context, whileHeld func(context.Context) error) error, archive func(context.Context) error,
) error {
	leaseCtx, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	reloadCtx, stopReloading := context.WithCancel(ctx)
	defer stopReloading()

	var reloadErr error
	reloadEnded := make(chan struct{})
	go func() {
		defer close(reloadEnded)
		reloadErr = reload(reloadCtx)
		if reloadErr != nil {
			stopWaiting()
		}
	}()

	err := waitForLease(leaseCtx, func(ctx context.Context) error {
		// The holder changes the manifest and answers the calls of ArchiveNow, so reload must have
		// ended before.
		stopReloading()
		<-reloadEnded
		if reloadErr != nil {
			return reloadErr
		}
		return archive(ctx)
	})

	stopReloading()
	<-reloadEnded
	if reloadErr != nil {
		return reloadErr
	}
	return err
}

// leaseName is the name of the lease that the archiving process holds.
const leaseName = "archive"

// reloadManifest reloads the manifest from time to time, and rejects calls of ArchiveNow, until ctx
// ends.
func (a *Archiver) reloadManifest(ctx context.Context) error {
	for a.waitRejectingRequests(ctx, pollInterval) {
		err := a.opts.Archive.Reload(ctx)
		if err != nil && isPermanent(err) {
			return err
		}
		// Another process may have sealed the segment that this one could not.
		if err == nil && a.hasSealFailed() {
			a.clearError()
		}
	}
	return nil
}

// archiveAsHolder archives while this process holds the lease.
func (a *Archiver) archiveAsHolder(ctx context.Context) error {
	// Another process may have had the lease and sealed segments since the last reload.
	if err := a.opts.Archive.Reload(ctx); err != nil {
		return err
	}
	// Remove the files of a segment that a crash has left without an entry in the manifest.
	if err := a.opts.Archive.Sweep(ctx); err != nil {
		return err
	}

	s, err := a.newSession(ctx)
	if err != nil {
		return err
	}
	defer s.sub.Close()

	// Merging ends before this function returns, because another process may get the lease then,
	// and only its holder may write the manifest.
	ctx, cancel := context.WithCancel(ctx)
	var merging sync.WaitGroup
	merging.Go(func() { a.mergeInBackground(ctx) })
	defer merging.Wait()
	defer cancel()

	a.updateStatus(func(s *Status) { s.Running = true })
	a.clearError()
	defer a.updateStatus(func(s *Status) {
		s.Running = false
		s.Waiting = 0
	})
	return s.run(ctx)
}

// session is the archiving by this process while it holds the lease once. Only the goroutine of Run
// uses it.
type session struct {
	*Archiver
	sub    *eventlog.Subscription
	writer *archive.Writer
	// unsealedBytes is how many bytes of the stream the writer holds, and unsealedSince when the
	// first of them was read.
	unsealedBytes int64
	unsealedSince time.Time
	// pendingRequests are the calls of ArchiveNow that have not been answered yet.
	pendingRequests []archiveRequest
	// lastTrim is when the session last tried to trim the stream because of the time, and not
	// because a segment was sealed.
	lastTrim time.Time
}

// newSession begins to read where the archive ends.
func (a *Archiver) newSession(ctx context.Context) (*session, error) {
	from := a.opts.Archive.End()
	if from.Seq == 0 { // the archive is empty
		from = a.opts.Log.Start()
	}

	if err := a.opts.Log.CheckCursor(ctx, from); err != nil {
		return nil, fmt.Errorf("the log does not continue where its archive ends: %w", err)
	}
	if err := a.beginEpochIfDue(ctx); err != nil {
		return nil, err
	}
	sub, err := a.opts.Hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return &session{Archiver: a, sub: sub, writer: a.opts.Archive.Writer()}, nil
}

// beginEpochIfDue begins a new epoch in the archive, if the log has begun one where the archive
// ends. See [events.Log.NextEpoch].
func (a *Archiver) beginEpochIfDue(ctx context.Context) error {
	end := a.opts.Archive.End()
	start := a.opts.Log.EpochStart()
	archived := a.opts.Archive.Epoch()
	isArchiveEmpty := archived == 0
	isArchivedUpToEpoch := end.Seq == start.Seq
	if isArchiveEmpty || archived >= start.Epoch || !isArchivedUpToEpoch {
		return nil
	}
	return a.opts.Archive.BeginEpoch(ctx, start.Epoch, end)
}

// run reads the log, seals segments and trims the stream until ctx ends or something fails.
func (s *session) run(ctx context.Context) (err error) {
	// Nobody else answers the calls of ArchiveNow that this session has accepted.
	defer func() {
		for _, r := range s.pendingRequests {
			r.done <- errors.Join(ErrNotRunning, err)
		}
	}()

	for {
		if err := s.sealIfDue(ctx); err != nil {
			return err
		}
		if time.Since(s.lastTrim) >= pollInterval {
			s.lastTrim = time.Now()
			if err := s.trimStream(ctx); err != nil {
				return err
			}
		}

		envs, err := s.nextEnvelopes(ctx)
		if err != nil {
			return err
		}
		if err := s.addAndSeal(ctx, envs); err != nil {
			return err
		}
	}
}

// sealIfDue seals what the writer holds if it is old enough, or if the writer has everything that a
// call of ArchiveNow asks for.
func (s *session) sealIfDue(ctx context.Context) error {
	readUpTo := s.writer.End().Seq
	isRequested := slices.ContainsFunc(s.pendingRequests, func(r archiveRequest) bool { return r.seq <= readUpTo })
	isOld := s.unsealedBytes > 0 && time.Since(s.unsealedSince) >= s.opts.SegmentAge
	if isRequested || isOld {
		return s.sealSegment(ctx)
	}
	return nil
}

// nextEnvelopes waits for envelopes and returns them. It returns none when it is time to trim or to
// seal, or when a call of ArchiveNow has come for which enough was read.
func (s *session) nextEnvelopes(ctx context.Context) ([]*events.Envelope, error) {
	wait := max(0, pollInterval-time.Since(s.lastTrim))
	if s.unsealedBytes > 0 {
		wait = min(wait, s.opts.SegmentAge-time.Since(s.unsealedSince))
	}
	// The timeout is never zero, so that a busy archiver reads envelopes that are there already.
	readCtx, cancel := context.WithTimeout(ctx, max(wait, time.Millisecond))
	defer cancel()

	// Read in a goroutine, so that calls of ArchiveNow are received in the meantime.
	type readResult struct {
		envs []*events.Envelope
		err  error
	}
	results := make(chan readResult, 1)
	go func() {
		envs, err := s.sub.Next(readCtx, maxReadBytes)
		results <- readResult{envs, err}
	}()

	// Always wait for the result, also after cancel: envelopes that Next has returned would be
	// missing from the segment otherwise.
	for {
		select {
		case r := <-s.requests:
			s.pendingRequests = append(s.pendingRequests, r)
			if r.seq <= s.writer.End().Seq {
				cancel() // everything up to r.seq has been read
			}
		case r := <-results:
			// If only readCtx has ended, that is no error: something else is due.
			isTimeout := errors.Is(r.err, context.DeadlineExceeded) || errors.Is(r.err, context.Canceled)
			if isTimeout && ctx.Err() == nil {
				r.err = nil
			}
			return r.envs, r.err
		}
	}
}

// addAndSeal passes envelopes to the writer, and seals whenever the writer holds enough.
func (s *session) addAndSeal(ctx context.Context, envs []*events.Envelope) error {
	for len(envs) > 0 {
		env := envs[0]

		// A segment never contains two epochs.
		previous := s.writer.End()
		if previous.Epoch != 0 && env.Cursor.Epoch > previous.Epoch {
			if err := s.sealSegment(ctx); err != nil {
				return err
			}
		}

		err := s.writer.Add(env)
		if errors.Is(err, archive.ErrFull) {
			if err := s.sealSegment(ctx); err != nil {
				return err
			}
			continue // add the same envelope to the next segment
		}
		if err != nil {
			return err
		}

		if s.unsealedBytes == 0 {
			s.unsealedSince = time.Now()
		}
		s.unsealedBytes += int64(env.Bytes)
		envs = envs[1:]
		if s.unsealedBytes >= s.opts.SegmentBytes {
			if err := s.sealSegment(ctx); err != nil {
				return err
			}
		}
	}
	s.updateStatus(func(st *Status) { st.Waiting = s.writer.Len() })
	return nil
}

// sealSegment seals what the writer holds as a segment, trims the stream, and answers the calls of
// ArchiveNow that have waited for the segment.
func (s *session) sealSegment(ctx context.Context) error {
	if s.writer.Len() > 0 {
		sealed, err := s.writer.Seal(ctx)
		if err != nil {
			s.recordSealFailure()
			return fmt.Errorf("seal the segment from sequence %d on: %w", s.opts.Archive.End().Seq+1, err)
		}
		s.clearError()
		s.writer = s.opts.Archive.Writer()
		s.unsealedBytes = 0
		s.updateStatus(func(st *Status) {
			st.Waiting = 0
			st.SealTime = time.Now()
		})
		if s.opts.Sealed != nil {
			s.opts.Sealed(sealed)
		}
	}

	// The segment may have been the last one of an epoch. A writer writes into the epoch in which
	// it was made, so a new epoch needs a new writer.
	before := s.opts.Archive.Epoch()
	if err := s.beginEpochIfDue(ctx); err != nil {
		return err
	}
	if s.opts.Archive.Epoch() != before {
		s.writer = s.opts.Archive.Writer()
	}

	err := s.trimStream(ctx)

	end := s.opts.Archive.End().Seq
	remaining := s.pendingRequests[:0]
	for _, r := range s.pendingRequests {
		if r.seq <= end {
			r.done <- err
			continue
		}
		remaining = append(remaining, r)
	}
	s.pendingRequests = remaining
	return err
}

// trimStream trims the stream. It keeps one horizon before the end of the archive, one horizon
// before the cursor of every store of this process, and what is younger than the retention. Stores
// of other processes that are further behind read the archive.
func (s *session) trimStream(ctx context.Context) error {
	end := s.opts.Archive.End()
	if s.opts.Retention < 0 || end.WarmSeq == 0 {
		return nil
	}

	upTo := end.WarmSeq - 1
	if s.opts.Cursors != nil {
		for _, c := range s.opts.Cursors() {
			// A cursor without a warm sequence is one of a store that reads the archive now. It
			// needs nothing of the stream from before its end.
			if c.WarmSeq > 0 {
				upTo = min(upTo, c.WarmSeq-1)
			}
		}
	}

	head, err := s.opts.Log.Head(ctx)
	if err != nil || upTo < head.First {
		return err
	}

	lastOld, err := s.opts.Log.SeqBefore(ctx, time.Now().Add(-s.opts.Retention))
	if err != nil {
		return err
	}

	upTo = min(upTo, lastOld)
	if upTo < head.First {
		return nil
	}
	if _, err := s.opts.Log.Trim(ctx, upTo); err != nil {
		return fmt.Errorf("trim the stream up to sequence %d: %w", upTo, err)
	}
	s.updateStatus(func(st *Status) { st.Trimmed = upTo })
	return nil
}
