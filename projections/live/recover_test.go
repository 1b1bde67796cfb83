package live_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestRecoverContinuesAfterFullDisk checks that a running projection that a full disk has stopped
// continues from what is on disk once there is free space, also if Pebble itself could not
// continue. Goroutines of Pebble are leaked, so the test runs in a process of its own.
func TestRecoverContinuesAfterFullDisk(t *testing.T) {
	if os.Getenv(ownProcessEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRecoverContinuesAfterFullDisk$", "-test.v", "-test.timeout=10m")
		cmd.Env = append(os.Environ(), ownProcessEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestRecoverContinuesAfterFullDisk/manifest") {
			t.Fatalf("the process of the test failed: %v\n%s", err, out)
		}
		return
	}
	for name, part := range map[string]string{"table": ".sst", "manifest": "MANIFEST"} {
		t.Run(name, func(t *testing.T) { testRecover(t, part) })
	}
}

// testRecover fills the disk twice for files whose names contain part, and recovers each time.
func testRecover(t *testing.T, part string) {
	envs := tally.History(3, 600)

	// While full is set, writes to these files fail as on a full disk.
	var full atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, part) {
			return fmt.Errorf("write %s: %w", op.Path, syscall.ENOSPC)
		}
		return nil
	}))
	o := liveOptions(fs)
	o.Bounds = store.Bounds{FlushBytes: 8 << 10, BatchBytes: 1 << 10}
	l := openLive(t, o)
	if err := l.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "not stopped") {
		t.Errorf("recover a running projection: got error %v, want one that contains \"not stopped\"", err)
	}

	log := storetest.NewLog(envs[:200]...)
	stop := runLive(t, l, log.Subscribe)
	if err := l.WaitFor(t.Context(), envs[199].Seq()); err != nil {
		t.Fatal(err)
	}
	previous := l.Serving()
	if err := previous.Flush(); err != nil {
		t.Fatal(err)
	}

	for round := range 2 {
		// Fill the disk, and append until a write fails.
		changed := l.Changed()
		full.Store(true)
		log.Append(envs[200+200*round : 400+200*round]...)
		for l.Status().State != store.Failed {
			<-changed
			changed = l.Changed()
		}

		if st := l.Status(); st.Damaged || !errors.Is(st.Error, syscall.ENOSPC) {
			t.Fatalf("got status %+v, want %v and not damaged", st, syscall.ENOSPC)
		}
		if err := l.Recover(t.Context()); err == nil {
			t.Error("recover on a full disk: got no error, want one")
		}

		// Free space lets the projection continue.
		full.Store(false)
		if err := l.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.WaitFor(t.Context(), envs[399+200*round].Seq()); err != nil {
			t.Fatal(err)
		}
		if st := l.Status(); st.State != store.Ready || st.Error != nil {
			t.Errorf("got status %+v, want state ready without an error", st)
		}
	}
	stop()
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "recovered")
}
