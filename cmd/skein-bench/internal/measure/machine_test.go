package measure

import (
	"strings"
	"testing"
)

func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FindTools()
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{
		"redis-server (Debian package redis-server)", "redis-benchmark (Debian package redis-tools)",
		"wrk (Debian package wrk)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
