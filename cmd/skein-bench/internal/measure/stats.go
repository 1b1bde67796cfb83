package measure

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Median returns the middle of the values, the mean of the two middle ones of an even number, 0 of none.
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

// spread returns the least and the greatest of the values, 0 of none.
func spread(values []float64) (least, greatest float64) {
	if len(values) == 0 {
		return 0, 0
	}
	return slices.Min(values), slices.Max(values)
}

// Figure writes a number with three significant digits and a unit prefix: 0.77, 33.1, 104 k, 1.05 M.
func Figure(v float64) string {
	prefix := ""
	for _, p := range []string{"k", "M", "G"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, prefix = v/1000, " "+p
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

// figures writes the median and, of more than one value, the spread.
func figures(values []float64) string {
	if len(values) < 2 {
		return Figure(Median(values))
	}
	least, greatest := spread(values)
	return fmt.Sprintf("%s (%s – %s)", Figure(Median(values)), Figure(least), Figure(greatest))
}

// Micros are the microseconds of a time.
func Micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// Latency is a measurement of times in microseconds, whose value is the time that 99 of 100 do not exceed.
func Latency(times []float64) Measurement {
	slices.Sort(times)
	at := func(percent int) float64 { return times[min(len(times)-1, len(times)*percent/100)] }
	return Measurement{Value: at(99), P50: at(50) / 1000, P99: at(99) / 1000}
}

// Rate is how many a second so many are that were done since a moment.
func Rate(n int, since time.Time) Measurement {
	return Measurement{Value: float64(n) / time.Since(since).Seconds()}
}
