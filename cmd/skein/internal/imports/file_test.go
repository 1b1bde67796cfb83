package imports

import "testing"

// The percentage of the rejected rows is printed with up to three digits, and not at all if there
// are none.
func TestPercentageOfRejectedRows(t *testing.T) {
	for _, c := range []struct {
		name           string
		rejected, rows uint64
		want           string
	}{
		{"none of some rows", 0, 10, ""},
		{"no rows", 0, 0, ""},
		{"less than one percent", 57, 10_000, " (0.57%)"},
		{"one of a million", 1, 1_000_000, " (0.0001%)"},
		{"rounded", 2, 6, " (33.3%)"},
		{"almost all", 999, 1000, " (99.9%)"},
		{"all", 6, 6, " (100%)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := percentText(c.rejected, c.rows); got != c.want {
				t.Errorf("%d of %d: got %q, want %q", c.rejected, c.rows, got, c.want)
			}
		})
	}
}
