package relation

import (
	"bytes"
	"errors"
	"testing"

	"github.com/skein-feed/skein/projections"
)

// TestFactsDecideWhetherAndSinceWhenARelationHolds goes through all combinations of facts, and
// encodes and decodes each.
func TestFactsDecideWhetherAndSinceWhenARelationHolds(t *testing.T) {
	for _, test := range []struct {
		facts Facts
		holds bool
		since int64
	}{
		{Facts{}, false, 0},
		{Facts{BackfillTime: 5}, true, 5},
		{Facts{LiveTime: 9}, true, 9},
		{Facts{BackfillTime: 5, LiveTime: 9}, true, 5},
		{Facts{HasLiveEnd: true}, false, 0},
		{Facts{BackfillTime: 5, HasLiveEnd: true}, false, 0},
		{Facts{LiveTime: 9, HasLiveEnd: true}, true, 9},
		{Facts{BackfillTime: 5, LiveTime: 9, HasLiveEnd: true}, true, 9},
	} {
		if got := test.facts.Holds(); got != test.holds {
			t.Errorf("%+v: holds is %v, want %v", test.facts, got, test.holds)
		}
		if got := test.facts.Since(); test.holds && int64(got) != test.since {
			t.Errorf("%+v: since is %d, want %d", test.facts, got, test.since)
		}

		row := test.facts.AppendRow(nil)
		if test.facts == (Facts{}) {
			if len(row) != 0 {
				t.Errorf("got the row %x of the zero facts, want no bytes", row)
			}
			continue
		}
		if got, err := Decode("relation", row); err != nil || got != test.facts {
			t.Errorf("%+v: decoded as %+v, error %v, want the same", test.facts, got, err)
		}
	}
}

// TestDecodeRejectsRowsThatNobodyWrites truncates and extends a row, and sets flags and times that
// no row has.
func TestDecodeRejectsRowsThatNobodyWrites(t *testing.T) {
	whole := Facts{BackfillTime: 5, LiveTime: 9, HasLiveEnd: true}.AppendRow(nil)
	rows := [][]byte{append(bytes.Clone(whole), 0), {0}, {8}, append([]byte{1}, make([]byte, 8)...)}
	for n := range whole {
		rows = append(rows, whole[:n])
	}
	for _, row := range rows {
		if f, err := Decode("relation", row); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("row %x: got %+v, error %v, want %v", row, f, err, projections.ErrCorrupt)
		}
	}
}
