//go:build upgrade

package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// oldProgram returns the older program of the drills.
func oldProgram(t *testing.T) string {
	t.Helper()
	old := os.Getenv("SKEIN_OLD")
	if old == "" {
		t.Fatal("SKEIN_OLD is the older program: go tool -modfile=tools.mod task upgrade:drill OLD=REF")
	}
	return old
}

// TestUpgradeAndDowngradeKeepAnswers upgrades from an older program, $SKEIN_OLD, to this one, goes
// back, and then upgrades for good. `task upgrade:drill` builds the older program. $SKEIN_MOVED
// matches the questions of which the two programs mean different things. With SKEIN_OLD_REFUSES the
// older program must refuse what was finalized; otherwise the test logs what it does.
func TestUpgradeAndDowngradeKeepAnswers(t *testing.T) {
	old := oldProgram(t)
	var changedQueries *regexp.Regexp
	if text := os.Getenv("SKEIN_MOVED"); text != "" {
		changedQueries = regexp.MustCompile(text)
	}
	s := &serverProcess{t: t, dir: t.TempDir(), flags: keepDataFlags}
	data := s.dataDir()
	serve := func(program string) {
		t.Helper()
		s.program = program
		if err := s.start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop := func() {
		t.Helper()
		if err := s.stopGracefully(); err != nil {
			t.Fatal(err)
		}
	}
	runAndLog := func(title, program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		text := strings.ReplaceAll(out.String(), data, "DATA")
		t.Logf("%s: skein %s (%v)\n%s", title, strings.ReplaceAll(strings.Join(args, " "), data, "DATA"), err, text)
		return text, err
	}
	flags := append([]string{"serve", "--data", data, "--check"}, keepDataFlags...)
	_, _ = runAndLog("the old program", old, "version")
	_, _ = runAndLog("the new program", "skein", "version")

	serve(old)
	publishGoldenEvents(t, s, old)
	recorded := recordAnswers(t, s, old)
	stop()
	t.Logf("the old program made a store, and answered %d questions", strings.Count(recorded, "$ skein "))

	_, outdated := runAndLog("the new program looks at it", "skein", flags...)
	if outdated != nil {
		s.flags = append([]string{"--auto-rebuild"}, keepDataFlags...)
	}
	serve("skein")
	checkAnswers(t, s, "skein", recorded, false, changedQueries)
	mustSkein(t, s, "skein", `{"userFollowed":{"userId":"u1","targetUserId":"written-by-new"}}`, "publish", "--visible")
	recorded = recordAnswers(t, s, "skein")
	t.Logf("the new program gave the same answers, took new facts, and its status is\n%s", mustSkein(t, s, "skein", "", "status"))
	stop()

	if _, err := runAndLog("the old program looks at it", old, flags...); err != nil && outdated == nil {
		t.Error("the old program cannot continue with the rows of the new one")
	}
	serve(old)
	checkAnswers(t, s, old, recorded, false, changedQueries)
	mustSkein(t, s, old, `{"userFollowed":{"userId":"u1","targetUserId":"written-by-old-again"}}`, "publish", "--visible")
	recorded = recordAnswers(t, s, old)
	stop()
	t.Logf("downgraded (serve %s): the old program gave the answers of the new one, and took new facts", s.flags[0])

	if _, err := runAndLog("the new program", "skein", "finalize-upgrade", "--data", data); err != nil {
		t.Fatal(err)
	}
	serve("skein")
	checkAnswers(t, s, "skein", recorded, false, changedQueries)
	mustSkein(t, s, "skein", "", "replay", "verify", "--share", "1")
	stop()
	t.Log("upgraded for good: the new program gave the same answers, and verify found no difference")

	s.flags = keepDataFlags
	text, err := runAndLog("the old program after that", old, flags...)
	if os.Getenv("SKEIN_OLD_REFUSES") != "" && (err == nil || !strings.Contains(text, "finalize-upgrade")) {
		t.Errorf("the old program does not say that the store was finalized: %v", err)
	}
}
