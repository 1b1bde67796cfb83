package counters

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestDescribeRowDescribesEveryRow describes every row that long histories make, and checks that
// every kind of row about items is among them.
func TestDescribeRowDescribesEveryRow(t *testing.T) {
	textByKind := map[string]string{}
	for seed := range uint64(6) {
		set := defaultSizes()
		set.maxPinsByName = int(seed % 3)
		s := openStore(t, set, store.Bounds{})
		history := histories.FixedFeeds(seed, 400)
		if seed%2 == 0 {
			history = histories.FixedPlays(seed, 400)
		}
		for _, env := range histories.Envelopes(history) {
			mustFold(t, s, env)
		}

		for key, value := range readRows(t, s) {
			text, err := projections.Text(DescribeRow([]byte(key), []byte(value)))
			if err != nil {
				t.Errorf("describe %x = %x: %v", key, value, err)
				continue
			}
			kind := strings.Fields(text)[1]
			if strings.HasSuffix(text, " by-name") {
				kind += " by-name"
			}
			textByKind[kind] = text

			// A key that is cut, or that is in another shard, cannot be described.
			cut := []byte(key[:len(key)-1])
			if _, err := projections.Text(DescribeRow(cut, []byte(value))); !errors.Is(err, projections.ErrCorrupt) {
				t.Errorf("describe a cut key of %q: got error %v, want %v", text, err, projections.ErrCorrupt)
			}
			other := bytes.Clone([]byte(key))
			other[1] ^= 1
			if _, err := projections.Text(DescribeRow(other, []byte(value))); err == nil {
				t.Errorf("describe %q in another shard: got no error, want one", text)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	want := []string{"user-list by-name"}
	for _, form := range itemForms {
		want = append(want, form.Name)
	}
	for _, form := range listForms {
		want = append(want, form.Name)
	}
	for _, kind := range want {
		if textByKind[kind] == "" {
			t.Errorf("got no row of kind %s from any history, want at least one", kind)
		}
	}
	if testing.Verbose() {
		for _, text := range textByKind {
			t.Log(text)
		}
	}
}
