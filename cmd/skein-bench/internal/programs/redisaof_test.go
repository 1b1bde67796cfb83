package programs

import (
	"testing"
	"time"
)

func TestLoadTimeIsReadFromOutput(t *testing.T) {
	for name, test := range map[string]struct {
		output string
		want   time.Duration
	}{
		"the time of the whole file, not of its base": {
			"1:M * DB loaded from base file appendonly.aof.1.base.aof: 9.000 seconds\n" +
				"1:M * DB loaded from append only file: 1.250 seconds\n",
			1250 * time.Millisecond,
		},
		"at least a millisecond": {"DB loaded from append only file: 0.000 seconds", time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseLoadTime(test.output)
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("parseLoadTime: got %v, want %v", got, test.want)
			}
		})
	}

	t.Run("no time", func(t *testing.T) {
		if got, err := parseLoadTime("Ready to accept connections"); err == nil {
			t.Errorf("parseLoadTime: got %v, want an error", got)
		}
	})
}
