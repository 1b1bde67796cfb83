package feedwatch

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// defaultCountInterval is the default of Watchers.CountInterval. A count costs as much as a
	// page.
	defaultCountInterval = time.Second
	// defaultResendAfter is the default of Watchers.ResendAfter. It keeps proxies from closing the
	// connection, and tells the client that the number still holds.
	defaultResendAfter = 30 * time.Second
)

// Count is a message of WatchFeed or WatchNotifications: how much is new for a user.
type Count interface {
	GetCount() uint32
	GetMore() bool
	GetCompleteness() skeinv1.FeedCompleteness
}

// Stream sends the count of one watcher, and sends it again when it has changed. All fields must be
// set before Run.
type Stream[C Count] struct {
	Watcher *Watcher
	// CountNow counts. isFirst says that this is the first count of the stream.
	CountNow func(ctx context.Context, isFirst bool) (C, error)
	// MarkerTime returns the marker of the user from which a count begins, and nil if it does not
	// begin at a marker. A client shows it, too.
	MarkerTime func(C) *timestamppb.Timestamp
	// Send sends a count to the client.
	Send func(C) error

	// latest is the result of the last count.
	latest    C
	lastCount time.Time
	lastSend  time.Time
}

// Run counts and sends until the context ends, the log can no longer be followed, or counting or
// sending fails.
func (s *Stream[C]) Run(ctx context.Context) error {
	if err := s.count(ctx, true); err != nil {
		return err
	}
	if err := s.send(); err != nil {
		return err
	}

	countInterval := s.Watcher.watchers.CountInterval
	resendAfter := s.Watcher.watchers.ResendAfter
	timer := time.NewTimer(resendAfter)
	defer timer.Stop()
	mayHaveChanged := false // the watcher was woken after the last count
	for {
		// A change is not counted before countInterval has passed. An author who pins a hundred
		// items in a row then causes a few counts per follower, and not a hundred.
		if mayHaveChanged {
			timer.Reset(countInterval - time.Since(s.lastCount))
		} else {
			timer.Reset(resendAfter - time.Since(s.lastSend))
		}
		select {
		case <-s.Watcher.Changed():
			mayHaveChanged = true
		case <-timer.C:
		case <-s.Watcher.Failed():
			return s.Watcher.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}

		mustSend := time.Since(s.lastSend) >= resendAfter
		// Nothing wakes the watcher when a store answers again or a rebuild ends, so an incomplete
		// number is counted again before it is sent again.
		isIncomplete := s.latest.GetCompleteness() != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE
		isCountDue := mayHaveChanged && time.Since(s.lastCount) >= countInterval
		if isCountDue || mustSend && isIncomplete {
			mayHaveChanged = false
			before := s.latest
			if err := s.count(ctx, false); err != nil {
				return err
			}
			mustSend = mustSend || s.hasChangedSince(before)
		}
		if mustSend {
			if err := s.send(); err != nil {
				return err
			}
		}
	}
}

// hasChangedSince reports whether the latest count differs from an earlier one in anything that a
// client shows.
func (s *Stream[C]) hasChangedSince(before C) bool {
	return s.latest.GetCount() != before.GetCount() ||
		s.latest.GetMore() != before.GetMore() ||
		s.latest.GetCompleteness() != before.GetCompleteness() ||
		!proto.Equal(s.MarkerTime(s.latest), s.MarkerTime(before))
}

// count counts, and sets latest. It waits until few enough other streams count.
//
// It counts in a goroutine of its own, which then ends. Reading a page needs a deep stack, and the
// goroutine of the stream would keep a stack of that size as long as it waits for changes. The
// goroutine begins after the wait, because thousands of streams may wait at once.
func (s *Stream[C]) count(ctx context.Context, isFirst bool) error {
	slots := s.Watcher.watchers.countSlots
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	type result struct {
		err        error
		panicValue any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicValue = recover()
			done <- r
		}()
		s.latest, r.err = s.CountNow(ctx, isFirst)
		s.lastCount = time.Now()
	}()

	// The result is awaited even if ctx ends, because CountNow sets s.latest.
	r := <-done
	if r.panicValue != nil {
		// The server recovers from panics in the goroutine of the call, and only there.
		panic(r.panicValue)
	}
	return r.err
}

// send sends the latest count.
func (s *Stream[C]) send() error {
	err := s.Send(s.latest)
	s.lastSend = time.Now()
	return err
}
