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
	user := func() string { return fmt.Sprintf("u%d", rng.IntN(24)) }

	var history strings.Builder
	for i := range 60 {
		fmt.Fprintf(&history, "u%d,u%d,2026-0%d-%02dT08:00:00Z\n", i%24, (i*7+1+i/24)%24, 1+i%9, 1+i%28)
	}

	file := filepath.Join(s.dir, "history.csv")
	if err := os.WriteFile(file, []byte(history.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	mustSkein(t, s, program, "", "import", "follows", file, "--columns", "follower,user,time")

	var live strings.Builder
	addLine := func(format string, args ...any) { fmt.Fprintf(&live, format+"\n", args...) }
	for i := range 12 {
		addLine(`{"boardCreated":{"board":{"ownerId":"u%d","boardId":"b%d"},"title":"Board %d"}}`, i%6, i, i)
		addLine(`{"pinCreated":{"pin":{"ownerId":"u%d","pinId":"p%d"},"boardId":"b%d","itemId":"i%d"}}`, i%6, i, i, i%9)
		addLine(`{"boardFollowed":{"userId":"%s","board":{"ownerId":"u%d","boardId":"b%d"}}}`, "u2"+fmt.Sprint(i%4), i%6, i)
	}
	for i := range 40 {
		addLine(`{"pinCreated":{"pin":{"ownerId":"u%d","pinId":"q%d"},"itemId":"i%d"}}`, i%20, i, i%9)
	}
	for range 80 {
		if a, b := user(), user(); a != b {
			addLine(`{"userFollowed":{"userId":"%s","targetUserId":"%s"}}`, a, b)
		}
		addLine(`{"played":{"userId":"%s","itemId":"i%d"}}`, user(), rng.IntN(9))
		addLine(`{"reacted":{"userId":"%s","itemId":"i%d"}}`, user(), rng.IntN(9))
	}
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
	var out, notes bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &notes
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("skein %s: %w", strings.Join(args, " "), err)
	}
	return out.String() + notes.String(), err
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
	var recorded strings.Builder
	var pageToken, newerToken, watchPosition string

	last := `{"feedRead":{"userId":"u2","readTime":"2026-01-02T03:04:05Z"}}`
	position := strings.TrimSpace(mustSkein(t, s, program, last, "publish", "--visible"))

	for _, read := range goldenQueries {
		args := strings.Fields(read)
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
			t.Fatalf("%s: no earlier answer had this token", read)
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
	asked := 0
	for _, part := range strings.Split("\n"+recorded, "\n$ skein ")[1:] {
		question, want, _ := strings.Cut(part, "\n")
		asked++

		got := mustSkein(t, s, program, "", strings.Fields(question)...)
		if otherEpoch {
			got, want = positionPattern.ReplaceAllString(got, "POSITION"), positionPattern.ReplaceAllString(want, "POSITION")
		}

		if changedQueries != nil && changedQueries.MatchString(question) {
			continue
		}
		if strings.TrimRight(got, "\n") != strings.TrimRight(want, "\n") {
			t.Errorf("skein %s\ngot\n%s\nwant\n%s", question, got, want)
		}
	}
	if asked < len(goldenQueries)-5 {
		t.Errorf("only %d commands are recorded, expected almost %d", asked, len(goldenQueries))
	}
}

// waitUntilArchived waits until the archive has the whole log.
func waitUntilArchived(t *testing.T, s *serverProcess, program string) {
	t.Helper()
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		out, err := runProgramWithTimeout(ctx, s, program, "", "status")
		if err == nil && !strings.Contains(out, " 0 envelopes wait") {
			err = fmt.Errorf("something waits for the archive:\n%s", out)
		}
		return err
	})
}
