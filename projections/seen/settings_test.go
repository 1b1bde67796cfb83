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

// TestCheckNamesBadSetting checks that settings out of bounds are refused with an error that names
// them.
func TestCheckNamesBadSetting(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *seen.Settings)
		// wantError is a part of the error. If it is empty, there must be none.
		wantError string
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
		t.Run(name, func(t *testing.T) {
			s := seen.DefaultSettings()
			test.change(&s)
			err := s.Check()
			if test.wantError == "" && err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if test.wantError != "" && (err == nil || !strings.Contains(err.Error(), test.wantError)) {
				t.Errorf("got error %v, want one that contains %q", err, test.wantError)
			}
		})
	}
}

// TestOtherSettingsAreRefused checks that a store opens only with the settings that it was built with,
// and that the error says which one differs (I4).
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
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			newTestLog(t, seen.DefaultSettings(), store.Options{FS: fs, Dir: "data"}).close()
			s := seen.DefaultSettings()
			test.change(&s)
			store, err := store.Open(store.Options{FS: fs, Dir: "data", Projection: seen.New(s)})
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if err := store.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, projections.ErrFingerprint) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want %v that contains %q", err, projections.ErrFingerprint, test.want)
			}
		})
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

// TestStoreOfOlderVersion checks that a store that version 2 has built answers until it is rebuilt,
// unless its closed months are truncated fingerprints. Neither store can be folded into, and both
// errors name the command that rebuilds the store.
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
			checkRefused(t, o, "skein replay rebuild seen")
			o.ReadOnly = true
			if test.refusal != "" {
				checkRefused(t, o, test.refusal)
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

// checkRefused checks that a store cannot be opened, with an error that contains a text.
func checkRefused(t *testing.T, o store.Options, want string) {
	t.Helper()
	_, err := store.Open(o)
	if !errors.Is(err, projections.ErrFingerprint) || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %v that contains %q", err, projections.ErrFingerprint, want)
	}
}
