package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/store"
)

// TestStoreOfAnotherFoldIsNotOpened checks that a store is not opened with another version, other
// kinds or other settings than it was built with.
func TestStoreOfAnotherFoldIsNotOpened(t *testing.T) {
	kinds := tally.New().Kinds()
	base := tally.Variant{Tally: tally.New(), FoldVersion: 1, ReadKinds: kinds, FoldSettings: map[string]string{"copies": "5", "cap": "10"}}
	for name, test := range map[string]struct {
		change func(c *tally.Variant)
		want   string
	}{
		"same": {func(*tally.Variant) {}, ""},
		"kinds in another order": {func(c *tally.Variant) {
			c.ReadKinds = append([]events.Kind{kinds[4]}, kinds[:4]...)
		}, ""},
		"version":      {func(c *tally.Variant) { c.FoldVersion = 2 }, "version was 1, is 2"},
		"setting":      {func(c *tally.Variant) { c.FoldSettings = map[string]string{"copies": "6", "cap": "10"} }, `setting copies was "5", is "6"`},
		"setting gone": {func(c *tally.Variant) { c.FoldSettings = map[string]string{"copies": "5"} }, `setting cap was "10", is not set`},
		"new setting":  {func(c *tally.Variant) { c.FoldSettings = map[string]string{"copies": "5", "cap": "10", "x": ""} }, `setting x was not set, is ""`},
		"fewer kinds":  {func(c *tally.Variant) { c.ReadKinds = kinds[:1] }, "is user_followed"},
		"two differences": {func(c *tally.Variant) {
			c.FoldVersion = 7
			c.FoldSettings = nil
		}, `version was 1, is 7; setting cap was "10"`},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			opts := store.Options{FS: fs, Dir: "data", Projection: base}
			s, err := store.Open(opts)
			if err != nil {
				t.Fatal(err)
			}
			before := s.Status().Fingerprint
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			// Open the store with the changed fold.
			changed := base
			test.change(&changed)
			opts.Projection = changed
			s, err = store.Open(opts)
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if after := s.Status().Fingerprint; after != before || len(after) != 32 {
					t.Errorf("got fingerprint %s, want %s with 32 digits", after, before)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}

			if !errors.Is(err, projections.ErrFingerprint) {
				t.Fatalf("open: got error %v, want %v", err, projections.ErrFingerprint)
			}
			for _, part := range []string{test.want, "rebuilt", "tally/000001"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got error %q, want one that contains %q", err, part)
				}
			}
		})
	}
}
