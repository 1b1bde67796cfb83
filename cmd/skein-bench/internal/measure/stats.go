package measure

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Median returns the middle one of the values. Of an even number of values it returns the mean of
// the two in the middle, and of none 0.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// minAndMax returns the least and the greatest of the values, or 0 if there are none.
func minAndMax(values []float64) (least, greatest float64) {
	if len(values) == 0 {
		return 0, 0
	}
	return slices.Min(values), slices.Max(values)
}

// FormatFigure formats a number with three significant digits and a unit prefix: 0.77, 33.1, 104 k,
// 1.05 M.
func FormatFigure(v float64) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v /= 1000
		prefix = " " + p
	}
	switch a := math.Abs(v); {
	case a >= 99.95 || a == 0:
		return fmt.Sprintf("%.0f%s", v, prefix)
	case a >= 9.995:
		return fmt.Sprintf("%.1f%s", v, prefix)
	default:
		return fmt.Sprintf("%.2f%s", v, prefix)
	}
}

// formatMedianAndSpread formats the median and, if there is more than one value, the spread.
func formatMedianAndSpread(values []float64) string {
	if len(values) < 2 {
		return FormatFigure(Median(values))
	}
	least, greatest := minAndMax(values)
	return fmt.Sprintf("%s (%s – %s)", FormatFigure(Median(values)), FormatFigure(least), FormatFigure(greatest))
}

// Micros returns a duration in microseconds.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// SummarizeLatencies returns the measurement of times in microseconds, which it sorts. The value is
// the p99.
func SummarizeLatencies(times []float64) Measurement {
	slices.Sort(times)
	percentile := func(percent int) float64 { return times[min(len(times)-1, len(times)*percent/100)] }
	return Measurement{Value: percentile(99), P50: percentile(50) / 1000, P99: percentile(99) / 1000}
}

// RateSince returns how many operations per second were done, if n were done since begin.
func RateSince(n int, begin time.Time) Measurement {
	return Measurement{Value: float64(n) / time.Since(begin).Seconds()}
}
