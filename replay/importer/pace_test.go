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
	taken   []time.Time   // of the envelopes that are not folded yet
	folding time.Time     // when the fold of the first of them began, if it has
	worst   time.Duration // longest lag so far
}

// fold folds the envelopes that the projection could fold until now.
func (f *slowService) fold() {
	for len(f.taken) > 0 {
		if f.folding.Before(f.taken[0]) {
			f.folding = f.taken[0]
		}
		if time.Since(f.folding) < time.Second {
			return
		}

		f.folding, f.taken = f.folding.Add(time.Second), f.taken[1:]
	}
}

func (f *slowService) publish(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	<-time.After(100 * time.Millisecond)

	res, err := f.fakeLog.publish(ctx, req)
	f.taken = append(f.taken, time.Now())
	f.worst = max(f.worst, f.lag().Behind)
	return res, err
}

func (f *slowService) lag() Lag {
	if f.fold(); len(f.taken) == 0 {
		return Lag{}
	}
	return Lag{Projection: "inbox", Behind: time.Since(f.taken[0])}
}

// An import waits for the slowest projection, reports that, and arrives completely.
func TestImportWaitsForProjections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// run imports a file, and returns how often the progress reported that the import waits.
		run := func(maxLag time.Duration, ask LagFunc) (*slowService, *Report, int) {
			f := &slowService{fakeLog: newFakeLog(t)}
			o := options(t, f.fakeLog, followLines(60_000))
			o.Publish, o.MaxLag = f.publish, maxLag
			o.Lag = ask
			if ask == nil {
				o.Lag = func(context.Context) (Lag, error) { return f.lag(), nil }
			}

			slowed := 0
			o.Observe = func(p Progress) {
				if p.Slowed.Projection == "inbox" && p.Slowed.Behind > maxLag {
					slowed++
				}
			}

			report := mustRun(t, o)
			if len(f.counted) != 60_000 {
				t.Errorf("got %d events in the log, expected 60000", len(f.counted))
			}
			return f, report, slowed
		}

		const most = 2 * time.Second
		f, report, slowed := run(most, nil)
		// Between two requests for the lag, it grows by the time between them. An envelope takes
		// another second to fold.
		if limit := most + lagInterval + time.Second; f.worst > limit || slowed == 0 || report.Waited < 20*time.Second {
			t.Errorf("got a lag of %v, expected at most %v; %d reports of a wait of %v in all", f.worst, limit, slowed, report.Waited)
		}

		if f, report, slowed = run(0, nil); f.worst < 5*time.Second || slowed > 0 || report.Waited > 0 {
			t.Errorf("without a limit: got a lag of %v, and %d reports of a wait of %v, expected no wait", f.worst, slowed, report.Waited)
		}

		lost := func(context.Context) (Lag, error) { return Lag{}, errors.New("no answer") }
		if _, report, _ = run(most, lost); report.Waited > 0 {
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
