package programs

import (
	"testing"
	"time"
)

func TestLoadTimeIsReadFromOutput(t *testing.T) {
	took, err := parseLoadTime("1:M * DB loaded from base file appendonly.aof.1.base.aof: 9.000 seconds\n" +
		"1:M * DB loaded from append only file: 1.250 seconds\n")
	if err != nil || took != 1250*time.Millisecond {
		t.Errorf("expected the time of the append-only file, 1.25 s, got %v, %v", took, err)
	}
	if took, err := parseLoadTime("DB loaded from append only file: 0.000 seconds"); err != nil || took != time.Millisecond {
		t.Errorf("expected at least a millisecond, got %v, %v", took, err)
	}
	if _, err := parseLoadTime("Ready to accept connections"); err == nil {
		t.Error("expected an error without the line")
	}
}
