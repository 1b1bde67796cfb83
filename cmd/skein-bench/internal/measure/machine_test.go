package measure

import (
	"strings"
	"testing"
)

func TestFindToolsNamesThePackagesOfMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FindTools()
	if err == nil {
		t.Fatal("FindTools without any program: got no error, want one")
	}
	for _, want := range []string{
		"redis-server (Debian package redis-server)", "redis-benchmark (Debian package redis-tools)",
		"wrk (Debian package wrk)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("FindTools: got error %q, want %q in it", err, want)
		}
	}
}
