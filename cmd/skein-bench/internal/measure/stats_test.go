package measure

import (
	"fmt"
	"testing"
)

func TestMedianIsTheMiddleValue(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{4, 1}, 2.5},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 2, 7}, 5},
	} {
		t.Run(fmt.Sprint(c.values), func(t *testing.T) {
			if got := Median(c.values); got != c.want {
				t.Errorf("Median: got %v, want %v", got, c.want)
			}
		})
	}
}

func TestFigureHasThreeDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.604: "0.60", 9.996: "10.0", 33.14: "33.1", 99.96: "100", 999.4: "999", 999.6: "1.00 k",
		104_166: "104 k", 1_050_000: "1.05 M", 2e9: "2.00 G", 7e12: "7000 G", -5.5: "-5.50",
	} {
		t.Run(want, func(t *testing.T) {
			if got := FormatFigure(v); got != want {
				t.Errorf("FormatFigure(%v): got %q, want %q", v, got, want)
			}
		})
	}
}

func TestLatencyGivesPercentiles(t *testing.T) {
	var times []float64
	for i := range 1000 {
		times = append(times, float64(1000-i))
	}
	want := Measurement{Value: 991, P50: 0.501, P99: 0.991}
	if got := SummarizeLatencies(times); got != want {
		t.Errorf("SummarizeLatencies: got %+v, want %+v", got, want)
	}
}
