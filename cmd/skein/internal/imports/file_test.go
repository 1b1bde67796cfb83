package imports

import "testing"

func TestPercentageOfRejectedRows(t *testing.T) {
	for _, c := range []struct {
		rejected, rows uint64
		want           string
	}{
		{0, 10, ""},
		{0, 0, ""},
		{57, 10_000, " (0.57%)"},
		{1, 1_000_000, " (0.0001%)"},
		{2, 6, " (33.3%)"},
		{999, 1000, " (99.9%)"},
		{6, 6, " (100%)"},
	} {
		if got := percentText(c.rejected, c.rows); got != c.want {
			t.Errorf("%d of %d: got %q, want %q", c.rejected, c.rows, got, c.want)
		}
	}
}
