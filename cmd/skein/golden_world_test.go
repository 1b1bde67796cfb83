package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// publishGoldenEvents imports history and publishes some events of every kind, with the commands of
// a program.
func publishGoldenEvents(t *testing.T, s *serverProcess, program string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 7411))
	randomUser := func() string { return fmt.Sprintf("u%d", rng.IntN(24)) }

	var history strings.Builder
	for i := range 60 {
		fmt.Fprintf(&history, "u%d,u%d,2026-0%d-%02dT08:00:00Z\n", i%24, (i*7+1+i/24)%24, 1+i%9, 1+i%28)
	}
	file := filepath.Join(s.dir, "history.csv")
	if err := os.WriteFile(file, []byte(history.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSkein(t, s, program, "", "import", "follows", file, "--columns", "follower,user,time")

	// Publish boards, each with a pin and a follower.
	var live strings.Builder
	addLine := func(format string, args ...any) { fmt.Fprintf(&live, format+"\n", args...) }
	for i := range 12 {
		addLine(`{"boardCreated":{"board":{"ownerId":"u%d","boardId":"b%d"},"title":"Board %d"}}`, i%6, i, i)
		addLine(`{"pinCreated":{"pin":{"ownerId":"u%d","pinId":"p%d"},"boardId":"b%d","itemId":"i%d"}}`, i%6, i, i, i%9)
		addLine(`{"boardFollowed":{"userId":"u2%d","board":{"ownerId":"u%d","boardId":"b%d"}}}`, i%4, i%6, i)
	}

	// Publish enough pins, on the default boards, for feeds and trending lists of several pages.
	for i := range 40 {
		addLine(`{"pinCreated":{"pin":{"ownerId":"u%d","pinId":"q%d"},"itemId":"i%d"}}`, i%20, i, i%9)
	}
	for range 80 {
		follower := randomUser()
		followee := randomUser()
		if follower != followee {
			addLine(`{"userFollowed":{"userId":"%s","targetUserId":"%s"}}`, follower, followee)
		}
		addLine(`{"played":{"userId":"%s","itemId":"i%d"}}`, randomUser(), rng.IntN(9))
		addLine(`{"reacted":{"userId":"%s","itemId":"i%d"}}`, randomUser(), rng.IntN(9))
	}

	// Undo and change some of this, and publish the other kinds of events.
	for _, line := range []string{
		`{"userUnfollowed":{"userId":"u1","targetUserId":"u2"}}`,
		`{"boardUnfollowed":{"userId":"u7","board":{"ownerId":"u3","boardId":"b3"}}}`,
		`{"boardDeleted":{"board":{"ownerId":"u5","boardId":"b11"}}}`,
		`{"pinCreated":{"pin":{"ownerId":"u9","pinId":"again"},"repinOf":{"ownerId":"u1","pinId":"p1"}}}`,
		`{"pinMoved":{"pin":{"ownerId":"u0","pinId":"p0"},"boardId":"b6"}}`,
		`{"pinDeleted":{"pin":{"ownerId":"u4","pinId":"p4"}}}`,
		`{"userBlocked":{"userId":"u1","targetUserId":"u8"}}`,
		`{"userBlocked":{"userId":"u1","targetUserId":"u9"}}`,
		`{"userUnblocked":{"userId":"u1","targetUserId":"u9"}}`,
		`{"userMuted":{"userId":"u1","targetUserId":"u3"}}`,
		`{"userUnmuted":{"userId":"u1","targetUserId":"u3"}}`,
		`{"userMuted":{"userId":"u1","targetUserId":"u4"}}`,
		`{"feedRead":{"userId":"u1","readTime":"2026-01-02T03:04:05Z"}}`,
		`{"unreacted":{"userId":"u1","itemId":"i1"}}`,
		`{"served":{"userId":"u1","itemIds":["i3","i4"]}}`,
		`{"seenCleared":{"userId":"u2"}}`,
		`{"itemScored":{"itemId":"i5","score":12}}`,
		`{"userDeleted":{"userId":"u23"}}`,
	} {
		addLine("%s", line)
	}

	// Small batches make many envelopes.
	mustSkein(t, s, program, live.String(), "publish", "--batch", "10", "--visible")
}

// runProgramWithTimeout runs a command of a program against a service, for waitLimit at most, and
// returns what it prints.
func runProgramWithTimeout(ctx context.Context, s *serverProcess, program, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	return runProgram(ctx, s, program, stdin, args...)
}

// runProgram does the same until the context ends.
func runProgram(ctx context.Context, s *serverProcess, program, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SKEIN_SERVER=http://"+s.addr)
	cmd.Stdin = strings.NewReader(stdin)
	// Collect the two separately: what is recorded must not depend on how they are interleaved.
	var out, errOut bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errOut

	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("skein %s: %w", strings.Join(args, " "), err)
	}
	return out.String() + errOut.String(), err
}

// mustSkein runs a command of a program against a service, and returns what it prints. The command
// must succeed.
func mustSkein(t *testing.T, s *serverProcess, program, stdin string, args ...string) string {
	t.Helper()
	out, err := runProgramWithTimeout(t.Context(), s, program, stdin, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// goldenQueries are the commands whose answers are recorded. MORE and NEWER are replaced by tokens
// of an earlier answer, POSITION by the last position, and POSITION8 by the position at the end of
// the first watch.
var goldenQueries = strings.Split(strings.TrimSpace(`
query check u1 u2 u3 u8 u9 u22 --board u3/b3 --board u1/b1 --at-least POSITION
query relationships u1 u2 u3 u4 u8 u9
query filter u1 u2 u3 u4 u5 u6 u7 u8 u9 u10
query following u1 --page-size 2
query following u1 --page-size 2 --page-token MORE
query followers u2 --page-size 2 --kind explicit
query followers u2 --page-size 2 --kind explicit --page-token MORE
query board-followers u3/b3
query board-followers u1/b1 --kind explicit
query followed-boards u20
query excluded-boards u7
query boards u5
query blocked u1
query muted u1
query mutuals u1 u3
query scan u2
query counts u1 u2 u23 --board u3/b3
query feed u1 --page-size 3
query feed u1 --page-size 3 --page-token MORE
query feed u1 --newer-than NEWER
query feed u7 --order trending --page-size 4
query feed u7 --order trending --page-size 4 --page-token MORE
query feed u1 --hide-seen --one-per-item --include-own
query pins u0
query pins u1 b1
query seen u1 i0 i1 i2 i3 i4 i5 i6 i7 i8 unknown
query seen u2 i0 i1 i2 i3 --ignore-served
query served u1
query counters u1 u2 --board u1/b1 --item i1 --item i5
query trending --page-size 3
query trending --page-size 3 --page-token MORE
query trending --owner u1
query trending --board u0/b6
watch --after earliest --limit 8 --json
watch --after POSITION8 --limit 20 --json
`), "\n")

var (
	pageTokenPattern     = regexp.MustCompile(`--page-token (\S+)`)
	newerTokenPattern    = regexp.MustCompile(`--newer-than (\S+)`)
	watchPositionPattern = regexp.MustCompile(`"position":"([^"]+)"`)
)

// recordAnswers runs all queries. For each it returns a line "$ skein …" with the command, followed
// by what the command printed.
func recordAnswers(t *testing.T, s *serverProcess, program string) string {
	t.Helper()
	lastEvent := `{"feedRead":{"userId":"u2","readTime":"2026-01-02T03:04:05Z"}}`
	position := strings.TrimSpace(mustSkein(t, s, program, lastEvent, "publish", "--visible"))

	// pageToken is of the last answer, newerToken of the first that had one, and watchPosition of
	// the last event of a watch.
	var pageToken, newerToken, watchPosition string
	var recorded strings.Builder
	for _, query := range goldenQueries {
		args := strings.Fields(query)
		for i, arg := range args {
			switch arg {
			case "MORE":
				args[i] = pageToken
			case "NEWER":
				args[i] = newerToken
			case "POSITION":
				args[i] = position
			case "POSITION8":
				args[i] = watchPosition
			}
		}
		if slices.Contains(args, "") {
			t.Fatalf("%s: got no earlier answer with this token, want one", query)
		}

		answer := mustSkein(t, s, program, "", args...)
		pageToken = ""
		if found := pageTokenPattern.FindStringSubmatch(answer); found != nil {
			pageToken = found[1]
		}
		if found := newerTokenPattern.FindStringSubmatch(answer); found != nil && newerToken == "" {
			newerToken = found[1]
		}
		if found := watchPositionPattern.FindAllStringSubmatch(answer, -1); found != nil {
			watchPosition = found[len(found)-1][1]
		}
		fmt.Fprintf(&recorded, "$ skein %s\n%s", strings.Join(args, " "), answer)
	}
	return recorded.String()
}

// positionPattern matches the parts of an answer that depend on the position. They differ in a log
// that continues in another epoch.
var positionPattern = regexp.MustCompile(`at position \S+|--page-token \S+|--newer-than \S+|"(position|resumeToken)":"[^"]+"`)

// checkAnswers runs the recorded commands again and compares the answers. If otherEpoch is set,
// positions may differ. Commands that match changedQueries mean something else by now, and only
// have to succeed.
func checkAnswers(t *testing.T, s *serverProcess, program, recorded string, otherEpoch bool, changedQueries *regexp.Regexp) {
	t.Helper()
	answers := strings.Split("\n"+recorded, "\n$ skein ")[1:]
	for _, answer := range answers {
		command, want, _ := strings.Cut(answer, "\n")
		got := runRecorded(t, s, program, command)
		if changedQueries != nil && changedQueries.MatchString(command) {
			continue
		}

		if otherEpoch {
			got = positionPattern.ReplaceAllString(got, "POSITION")
			want = positionPattern.ReplaceAllString(want, "POSITION")
		}
		// Page tokens of feeds by heat have more in them than those of v0.1, which are still read.
		if strings.Contains(command, "query feed") && strings.Contains(command, "--order trending") {
			got = pageTokenPattern.ReplaceAllString(got, "TOKEN")
			want = pageTokenPattern.ReplaceAllString(want, "TOKEN")
		}
		if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") {
			t.Errorf("skein %s: got\n%s\nwant\n%s", command, got, want)
		}
	}

	// The program of an earlier version may have had a few commands less.
	if least := len(goldenQueries) - 5; len(answers) < least {
		t.Errorf("got %d recorded commands, want at least %d", len(answers), least)
	}
}

// runRecorded runs a command as mustSkein does. The program under test needs no process for it.
func runRecorded(t *testing.T, s *serverProcess, program, command string) string {
	t.Helper()
	args := strings.Fields(command)
	if program != "skein" {
		return mustSkein(t, s, program, "", args...)
	}
	code, out, errOut := runInProcess(append(args, "--server", s.addr)...)
	if code != exitOK {
		t.Fatalf("skein %s: exit code %d\n%s%s", command, code, out, errOut)
	}
	return out + errOut
}

// waitUntilArchived waits until the archive has the whole log.
func waitUntilArchived(t *testing.T, s *serverProcess, program string) {
	t.Helper()
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		out, err := runProgramWithTimeout(ctx, s, program, "", "status")
		if err != nil {
			return err
		}
		if want := " 0 envelopes wait"; !strings.Contains(out, want) {
			return fmt.Errorf("status: got\n%s\nwant a line with %q", out, want)
		}
		return nil
	})
}
