package importer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// slowService has a projection that folds one envelope per second, while its log accepts one in a
// tenth of that time.
type slowService struct {
	*fakeLog
	pending    []time.Time   // when each envelope was accepted that is not folded yet
	foldBegan  time.Time     // when the fold of the first of them began, if it has
	longestLag time.Duration // so far
}

// fold folds the envelopes that the projection could fold until now.
func (f *slowService) fold() {
	for len(f.pending) > 0 {
		if f.foldBegan.Before(f.pending[0]) {
			f.foldBegan = f.pending[0]
		}
		if time.Since(f.foldBegan) < time.Second {
			return
		}

		// The fold of the next envelope began when this one was folded.
		f.foldBegan = f.foldBegan.Add(time.Second)
		f.pending = f.pending[1:]
	}
}

// publish appends the events, which takes a tenth of a second.
func (f *slowService) publish(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	<-time.After(100 * time.Millisecond)

	res, err := f.fakeLog.publish(ctx, req)
	f.pending = append(f.pending, time.Now())
	f.longestLag = max(f.longestLag, f.lag().Behind)
	return res, err
}

// lag returns how far the projection is behind the log.
func (f *slowService) lag() Lag {
	f.fold()
	if len(f.pending) == 0 {
		return Lag{}
	}
	return Lag{Projection: "inbox", Behind: time.Since(f.pending[0])}
}

// An import waits for the slowest projection, reports that, and arrives completely.
func TestImportWaitsForProjections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// runImport imports a file, and returns how often the progress reported that the import
		// waits. A nil getLag returns the lag of the service.
		runImport := func(maxLag time.Duration, getLag LagFunc) (*slowService, *Report, int) {
			f := &slowService{fakeLog: newFakeLog(t)}
			o := options(t, f.fakeLog, followLines(60_000))
			o.Publish = f.publish
			o.MaxLag = maxLag
			o.Lag = getLag
			if getLag == nil {
				o.Lag = func(context.Context) (Lag, error) { return f.lag(), nil }
			}

			waitReports := 0
			o.Observe = func(p Progress) {
				if p.Slowed.Projection == "inbox" && p.Slowed.Behind > maxLag {
					waitReports++
				}
			}

			report := mustRun(t, o)
			if len(f.described) != 60_000 {
				t.Errorf("got %d events in the log, expected 60000", len(f.described))
			}
			return f, report, waitReports
		}

		// Between two requests for the lag, it grows by the time between them. An envelope takes
		// another second to fold.
		const maxLag = 2 * time.Second
		const limit = maxLag + lagInterval + time.Second
		f, report, waitReports := runImport(maxLag, nil)
		if f.longestLag > limit {
			t.Errorf("got a lag of %v, expected at most %v", f.longestLag, limit)
		}
		if waitReports == 0 || report.Waited < 20*time.Second {
			t.Errorf("got %d reports of a wait of %v in all, expected some, and at least 20s", waitReports, report.Waited)
		}

		f, report, waitReports = runImport(0, nil)
		if f.longestLag < 5*time.Second {
			t.Errorf("without a limit: got a lag of %v, expected at least 5s", f.longestLag)
		}
		if waitReports > 0 || report.Waited > 0 {
			t.Errorf("without a limit: got %d reports of a wait of %v, expected no wait", waitReports, report.Waited)
		}

		returnNoAnswer := func(context.Context) (Lag, error) { return Lag{}, errors.New("no answer") }
		if _, report, _ = runImport(maxLag, returnNoAnswer); report.Waited > 0 {
			t.Errorf("with an unknown lag: got a wait of %v, expected none", report.Waited)
		}
	})
}

// An import can be interrupted while it waits.
func TestWaitingImportCanBeInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t)
		o := options(t, l, followLines(2000))
		o.MaxLag = time.Second
		o.Lag = func(context.Context) (Lag, error) { return Lag{"graph", time.Hour}, nil }

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := Run(ctx, o); !errors.Is(err, context.DeadlineExceeded) || l.calls > 0 {
			t.Errorf("got %v after %d calls, expected DeadlineExceeded before the first call", err, l.calls)
		}
	})
}
