package seen_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

func TestCheckNamesBadSetting(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *seen.Settings)
		want   string
	}{
		"defaults":              {func(*seen.Settings) {}, ""},
		"one month":             {func(s *seen.Settings) { s.Window, s.Retention = 1, 1 }, ""},
		"ten years":             {func(s *seen.Settings) { s.Window, s.Retention = 120, 120 }, ""},
		"least share":           {func(s *seen.Settings) { s.FalsePositives = 1e-9 }, ""},
		"largest share":         {func(s *seen.Settings) { s.FalsePositives = 0.5 }, ""},
		"no retention":          {func(s *seen.Settings) { s.Retention = 0 }, "the retention is 0"},
		"negative retention":    {func(s *seen.Settings) { s.Retention = -1 }, "the retention is -1"},
		"too long":              {func(s *seen.Settings) { s.Retention = 121 }, "the retention is 121, not 1 to 120"},
		"no window":             {func(s *seen.Settings) { s.Window = 0 }, "the window is 0"},
		"window past retention": {func(s *seen.Settings) { s.Window = 7 }, "the window is 7, not 1 to 6"},
		"no false positive":     {func(s *seen.Settings) { s.FalsePositives = 0 }, "share of false positives is 0"},
		"negative share":        {func(s *seen.Settings) { s.FalsePositives = -0.1 }, "is -0.1"},
		"too small a share":     {func(s *seen.Settings) { s.FalsePositives = 1e-10 }, "is 1e-10"},
		"too large a share":     {func(s *seen.Settings) { s.FalsePositives = 0.51 }, "is 0.51"},
		"no number":             {func(s *seen.Settings) { s.FalsePositives = math.NaN() }, "is NaN"},
		"infinite":              {func(s *seen.Settings) { s.FalsePositives = math.Inf(1) }, "is +Inf"},
	} {
		s := seen.DefaultSettings()
		test.change(&s)
		err := s.Check()
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestOtherSettingsAreRefused: a store opens with the settings only that it was built with, and
// says which one differs (I4).
func TestOtherSettingsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *seen.Settings)
		want   string
	}{
		"same":            {func(*seen.Settings) {}, ""},
		"window":          {func(s *seen.Settings) { s.Window = 3 }, `setting window was "4", is "3"`},
		"retention":       {func(s *seen.Settings) { s.Retention = 7 }, `setting retention was "6", is "7"`},
		"false positives": {func(s *seen.Settings) { s.FalsePositives = 0.0011 }, `setting false-positives was "0.001", is "0.0011"`},
	} {
		fs := vfs.NewMem()
		journalOf(t, seen.DefaultSettings(), store.Options{FS: fs, Dir: "data"}).close()
		s := seen.DefaultSettings()
		test.change(&s)
		store, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: seen.New(s)})
		if test.want == "" {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, projections.ErrFingerprint) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// olderFold stands for a program of version 2, which could seal months as truncated fingerprints.
type olderFold struct {
	*seen.Seen
	fingerprints string
}

func (olderFold) Version() uint32 { return 2 }

func (f olderFold) Settings() map[string]string {
	s := f.Seen.Settings()
	s["fingerprints"] = f.fingerprints
	return s
}

// TestStoreOfOlderVersion: a store that version 2 has built answers until it is rebuilt, unless its
// closed months are truncated fingerprints. Neither is folded into, and both errors name the
// command that rebuilds the store.
func TestStoreOfOlderVersion(t *testing.T) {
	for _, test := range []struct{ name, fingerprints, refusal string }{
		{"of Bloom filters", "false", ""},
		{"of truncated fingerprints", "true", `setting fingerprints was "true", is not set`},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := store.Options{
				FS: vfs.NewMem(), Dir: "data", Projection: olderFold{seen.New(seen.DefaultSettings()), test.fingerprints},
			}
			old, err := store.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}

			o.Projection = seen.New(seen.DefaultSettings())
			mustRefuse(t, o, "skein replay rebuild seen")
			o.ReadOnly = true
			if test.refusal != "" {
				mustRefuse(t, o, test.refusal)
				return
			}
			store, err := store.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func mustRefuse(t *testing.T, o store.Options, want string) {
	t.Helper()
	_, err := store.Open(o)
	if !errors.Is(err, projections.ErrFingerprint) || !strings.Contains(err.Error(), want) {
		t.Errorf("expected a refusal with %q, got %v", want, err)
	}
}
