package counters

import (
	"strings"
	"testing"
)

// TestEqualReactionWeightsHaveOneFingerprint checks that settings that mean the same have the same
// fingerprint, and that settings without a clear meaning are refused.
func TestEqualReactionWeightsHaveOneFingerprint(t *testing.T) {
	for _, test := range []struct{ name, text, want, wantError string }{
		{"default", DefaultSettings().ReactionWeights, "like=4", ""},
		{"sorted by name", "save=3,like=4", "like=4,save=3", ""},
		{"without what adds nothing", "like=0,wow=1", "wow=1", ""},
		{"none", "", "", ""},
		{"private", "_bookmark=1", "", "_bookmark is private"},
		{"twice", "like=1,like=2", "", "like has two weights"},
		{"no number", "like", "", "not KIND=N"},
		{"negative", "like=-1", "", "not KIND=N"},
		{"no kind", "=1", "", "not KIND=N"},
		{"other letters", "Like=1", "", "not KIND=N"},
		{"too long", strings.Repeat("x", 33) + "=1", "", "not KIND=N"},
	} {
		t.Run(test.name, func(t *testing.T) {
			settings := DefaultSettings()
			settings.ReactionWeights = test.text

			err := settings.Check()
			if test.wantError != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantError) {
					t.Errorf("got error %v, want one that contains %q", err, test.wantError)
				}
				return
			}
			if err != nil {
				t.Errorf("got error %v, want none", err)
			}
			if got := New(settings).Settings()["reaction-weights"]; got != test.want {
				t.Errorf("got fingerprint %q, want %q", got, test.want)
			}
		})
	}
}
