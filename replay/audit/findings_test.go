package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/verify"
)

// A verification uses the half of the share that audits leave. A repair, for which the audits wait,
// uses the whole share and no more.
func TestRepairsKeepTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		a := NewAuditor(Config{
			Share: 0.1, All: map[string]Store{"graph": nil},
			Shadow: func(string) verify.Options { return verify.Options{} },
		})
		shares := make(chan float64)
		a.repairStore = func(ctx context.Context, _ verify.Store, o verify.Options) (*verify.Report, error) {
			select {
			case shares <- o.Pace.Share:
				return &verify.Report{Equal: true}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}

		ended := make(chan error)
		go func() { ended <- a.verifyAll(ctx) }()
		if share := <-shares; share != 0.05 {
			t.Errorf("verification: got a share of %v, expected 0.05", share)
		}

		request := repairRequest{[]string{"graph"}, make(chan error, 1)}
		a.repairs <- request
		if share := <-shares; share != 0.1 {
			t.Errorf("repair: got a share of %v, expected 0.1", share)
		}
		if err := <-request.done; err != nil {
			t.Errorf("repair: got %v, expected no error", err)
		}

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("verifyAll returned %v, expected %v", err, context.Canceled)
		}
	})
}

// If there is too little free disk for the shadow of one projection, the others are still verified.
// The status reports it for as long as it lasts.
func TestTooLittleDiskForOneShadowStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		statuses := make(chan Status)
		a := NewAuditor(Config{
			All: map[string]Store{"counters": nil, "graph": nil},
			Shadow: func(name string) verify.Options {
				return verify.Options{Dir: name}
			},
			Observe: func(s Status) {
				select {
				case statuses <- s:
				case <-ctx.Done():
				}
			},
		})

		var isDiskFull atomic.Bool
		isDiskFull.Store(true)
		a.repairStore = func(_ context.Context, _ verify.Store, o verify.Options) (*verify.Report, error) {
			if isDiskFull.Load() && o.Dir == "counters" {
				return nil, fmt.Errorf("%w: 5 are needed, 4 are free", replay.ErrDisk)
			}
			return &verify.Report{Equal: true}, nil
		}

		ended := make(chan error)
		go func() { ended <- a.verifyAll(ctx) }()
		s := <-statuses
		if s.NoDisk["counters"] == "" || len(s.NoDisk) != 1 {
			t.Errorf("the first status: got no disk for %v, expected only counters", s.NoDisk)
		}
		s = <-statuses
		if s.Verified["graph"].IsZero() || s.NoDisk["counters"] == "" {
			t.Errorf("the second status: got %v verified and no disk for %v, expected graph verified and no disk for counters",
				s.Verified, s.NoDisk)
		}

		isDiskFull.Store(false)
		for s.Verified["counters"].IsZero() {
			s = <-statuses
		}
		if len(s.NoDisk) > 0 {
			t.Errorf("with enough disk: got no disk for %v, expected that it is empty", s.NoDisk)
		}

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("verifyAll returned %v, expected %v", err, context.Canceled)
		}
	})
}

// EndVerification ends the verification that is under way, and leaves no shadow that was made
// before. Then the auditor verifies the next projection.
func TestEndedVerificationLeavesNoShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		fs := vfs.NewMem()
		a := NewAuditor(Config{
			All:    map[string]Store{"counters": nil, "graph": nil},
			Shadow: func(name string) verify.Options { return verify.Options{FS: fs, Dir: "shadow-of-" + name} },
		})
		begun := make(chan string)
		a.repairStore = func(ctx context.Context, _ verify.Store, o verify.Options) (*verify.Report, error) {
			// Like a shadow that cannot be removed at its end.
			if err := fs.MkdirAll(o.Dir, 0o700); err != nil {
				return nil, err
			}
			begun <- o.Dir
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if err := fs.MkdirAll("shadow-of-graph.parts", 0o700); err != nil {
			t.Fatal(err)
		}

		ended := make(chan error)
		go func() { ended <- a.verifyAll(ctx) }()
		if dir := <-begun; dir != "shadow-of-counters" {
			t.Errorf("the first verification: got the shadow %s, expected that of counters", dir)
		}
		if err := a.EndVerification(ctx); err != nil {
			t.Errorf("EndVerification: got %v, expected no error", err)
		}
		if dir := <-begun; dir != "shadow-of-graph" {
			t.Errorf("the second verification: got the shadow %s, expected that of graph", dir)
		}
		names, err := fs.List("")
		if err != nil || !slices.Equal(names, []string{"shadow-of-graph"}) {
			t.Errorf("got the directories %v, %v, expected only the shadow of the second verification", names, err)
		}

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("verifyAll returned %v, expected %v", err, context.Canceled)
		}
	})
}

// Findings that wait for free disk are not found again in the meantime, and are due after a while.
func TestFindingsWaitForDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The stores do not serve, so a check of findings that are due returns an error.
		a := NewAuditor(Config{Graph: stoppedStore{}, Inbox: stoppedStore{}, Counters: stoppedStore{}})
		ann := Finding{Entity: Entity{User: "ann"}, Check: "counts"}
		bob := Finding{Entity: Entity{User: "bob"}, Check: "feed"}
		go func() {
			request := <-a.repairs
			request.done <- fmt.Errorf("%w: 5 are needed, 4 are free", replay.ErrDisk)
		}()

		if err := a.repairStores(t.Context(), []Finding{ann}); err != nil {
			t.Fatal(err)
		}
		if s := a.Status(); s.Waiting != 1 || s.Unexplained != 0 {
			t.Errorf("got %d findings that wait and %d unexplained, expected 1 and 0", s.Waiting, s.Unexplained)
		}
		if others := a.dropKnown([]Finding{ann, bob}); len(others) != 1 || others[0].Entity != bob.Entity {
			t.Errorf("got %v as unknown findings, expected %v", others, bob)
		}

		<-time.After(time.Minute - time.Second)
		if err := a.retryWaiting(t.Context()); err != nil || a.Status().Waiting != 1 {
			t.Errorf("before it is due: got %d findings that wait, %v, expected 1", a.Status().Waiting, err)
		}

		<-time.After(time.Second)
		if err := a.retryWaiting(t.Context()); !errors.Is(err, projections.ErrStopped) {
			t.Errorf("when it is due: got the error %v, expected %v of the check", err, projections.ErrStopped)
		}
	})
}

// stoppedStore is a store that does not serve.
type stoppedStore struct{ Store }

// View is part of [Viewer].
func (stoppedStore) View() (*projections.View, error) { return nil, projections.ErrStopped }

// Findings that are due while the stores cannot be read wait for the next attempt.
func TestFindingsWaitWhileStoresAreStopped(t *testing.T) {
	a := NewAuditor(Config{Graph: stoppedStore{}, Inbox: stoppedStore{}, Counters: stoppedStore{}})
	a.waitForDisk([]Finding{{Entity: Entity{User: "ann"}, Check: "counts"}}, replay.ErrDisk)
	a.nextRetry = time.Time{}

	if err := a.retryWaiting(t.Context()); !errors.Is(err, projections.ErrStopped) {
		t.Errorf("got the error %v, expected %v", err, projections.ErrStopped)
	}
	if waiting := a.Status().Waiting; waiting != 1 {
		t.Errorf("got %d findings that wait, expected 1", waiting)
	}
}
