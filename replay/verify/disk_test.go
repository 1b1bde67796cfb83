package verify_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// A shadow for which there is too little free disk is not begun, and one that takes more than
// expected is stopped. Both leave nothing behind. With enough disk, the check changes nothing.
func TestShadowThatDoesNotFitIsRefused(t *testing.T) {
	const mib = 1 << 20
	envs := memlog.NewWorld(1, 20).Envelopes(100)
	for _, env := range envs {
		env.Bytes = 10 * mib
	}
	f := newTestStore(t, 0, envs)

	for name, test := range map[string]struct {
		freeFirst uint64   // free disk at the first check, before the shadow is begun
		freeThen  uint64   // free disk at the later checks
		wantWords []string // of the error; nil means that the shadow fits
	}{
		"too little":    {1555 * mib, 1555 * mib, []string{"for a shadow of graph", "1556 MiB are needed", "1555 MiB are free"}},
		"less and less": {1556 * mib, 255 * mib, []string{"255 MiB are left", "256 MiB must stay free"}},
		"just enough":   {1556 * mib, 256 * mib, nil},
		"unknown":       {math.MaxUint64, math.MaxUint64, nil},
	} {
		t.Run(name, func(t *testing.T) {
			checks := 0
			o := f.options()
			o.StoreBytes = func() uint64 { return 1000 * mib }
			o.FreeDisk = func() (uint64, error) {
				checks++
				if checks == 1 {
					return test.freeFirst, nil
				}
				return test.freeThen, nil
			}

			r, err := verify.Verify(t.Context(), f.store, o)
			isBegun := test.freeFirst != 1555*mib
			if isBegun && checks < 2 {
				t.Errorf("while 1000 MiB of the log were folded, the disk was checked %d times, expected at least twice", checks)
			}
			if test.wantWords == nil {
				if err != nil || !r.Equal {
					t.Errorf("got %v and %v, expected an equal store", r, err)
				}
				return
			}

			if !errors.Is(err, replay.ErrDisk) {
				t.Fatalf("got %v, expected ErrDisk", err)
			}
			for _, words := range test.wantWords {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("expected an error with %q, got %q", words, err)
				}
			}
			if names, err := f.fs.List("data/scratch"); err == nil {
				t.Errorf("got the files %v, expected that the shadow is removed with its directory", names)
			}
		})
	}
}
