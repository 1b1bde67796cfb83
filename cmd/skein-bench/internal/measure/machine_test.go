package measure

import (
	"strings"
	"testing"
)

func TestFindToolsNamesThePackagesOfMissingPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := FindTools()
	if err == nil {
		t.Fatal("expected an error without any program")
	}
	for _, want := range []string{
		"redis-server (Debian package redis-server)", "redis-benchmark (Debian package redis-tools)",
		"wrk (Debian package wrk)",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q in the error, got %q", want, err)
		}
	}
}
