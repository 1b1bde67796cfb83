package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
)

// smallRedis returns a Redis with facts of several kinds, and with elements of every kind that an
// import rejects.
func smallRedis() *fakeRedis {
	return &fakeRedis{keys: map[string]fakeKey{
		"followers:ann": {sortedSet, []string{
			"bob", "1600000000", "cid", "1600000001.5", "ann", "1", "b d", "2", "late", "1e12", "soon", "1772600768",
		}},
		"following:bob": {set, []string{"ann", "dan"}},
		"plays:bob":     {hash, []string{"i1", "1600000000000", "i2", "x"}},
		"likes:i1":      {set, []string{"bob", "\xff\x00"}},
		"likes:i2":      {list, []string{"bob"}},
		"served:bob":    {list, []string{"i1", "i2", "i3", "i4", "i5", "i1"}},
		"gone:x":        {set, []string{"y"}},
	}}
}

func TestRedisFactsAreInTheLog(t *testing.T) {
	l := newFakeLog(t)
	report := mustRun(t, newTestRun(t, smallRedis(), l))

	want := map[string]int{
		"user_followed bob ann    []  2020-09-13T12:26:40Z":   1, // both sides have it, only this one with its time
		"user_followed cid ann    []  2020-09-13T12:26:41.5Z": 1,
		"user_followed bob dan    []  2026-03-04T05:06:07Z":   1, // the start of the import
		"user_followed soon ann    []  2026-03-04T05:06:07Z":  1, // its time is a second after the start of the import
		"played bob    i1 []  2020-09-13T12:26:40Z":           1,
		"reacted bob    i1 []  2026-03-04T05:06:07Z":          1,
	}
	for i := range 5 {
		want[fmt.Sprintf("served bob     [i%d]  2026-03-04T05:06:07Z", i+1)] = 1
	}
	if diff := cmp.Diff(want, l.eventCounts); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if report.Found != 11 || report.New != 11 || report.Published != 11 {
		t.Errorf("got %+v, expected 11 facts, all new and published", report)
	}
	if report.Rejected != 6 || report.Clamped != 1 || report.Run != 1 {
		t.Errorf("got %+v, expected 6 rejects and one clamped time in the first run", report)
	}

	rejects, err := os.ReadFile(report.Rejects)
	if err != nil {
		t.Fatal(err)
	}
	const reason = "must be 1 to 128 bytes of UTF-8 without white space, control characters, bidirectional controls and noncharacters"
	if diff := cmp.Diff(`rule	key	element	reason
1	followers:ann	ann	user_followed.target_user_id must not be the acting user: nobody follows, blocks or mutes themselves
1	followers:ann	b d	user_followed.user_id `+reason+`
1	followers:ann	late	the time "1e12", in s, is more than a day after the start of the import: is that the unit?
3	plays:bob	i2=x	the time "x" is no number
4	likes:i1	"\xff\x00"	reacted.user_id `+reason+`
4	likes:i2		the key is a list: the rule reads a set
`, string(rejects)); diff != "" {
		t.Errorf("rejects (-want +got):\n%s", diff)
	}
}

// If keys that match one pattern have several types, the type decides which rule reads them.
func TestRuleIsChosenByType(t *testing.T) {
	r := &fakeRedis{keys: map[string]fakeKey{
		"a": {set, []string{"x"}}, "b": {list, []string{"x"}}, "c": {hash, []string{"x", "y"}}, "d": {"string", nil},
	}}
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.Mapping = mustParse(t, `rules:
- {means: reactions, key: '{user}', member: '{item}'}
- {means: plays, key: '{user}', field: '{item}'}
- {means: served, key: '{user}', element: '{item}'}
`)

	report := mustRun(t, imp)
	want := map[string]int{
		"reacted a    x []  2026-03-04T05:06:07Z": 1,
		"played c    x []  2026-03-04T05:06:07Z":  1,
		"served b     [x]  2026-03-04T05:06:07Z":  1,
	}
	if diff := cmp.Diff(want, l.eventCounts); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if report.Rejected != 1 {
		t.Errorf("got %d rejects, expected 1, the key that no rule reads", report.Rejected)
	}
}

// A second run publishes nothing if Redis has not changed, and otherwise only what has changed.
// Plays count once.
func TestSecondRunPublishesOnlyNewFacts(t *testing.T) {
	r := smallRedis()
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	mustRun(t, imp)
	callsBefore := l.calls
	eventsBefore := len(l.eventCounts)

	// Nothing has changed, but Redis was restarted, so that it lists keys in another order.
	r.run++
	imp = imp.newRun()
	imp.Now = func() time.Time { return start.Add(time.Hour) }
	report := mustRun(t, imp)
	if report.Run != 2 || report.Found != 11 || report.New != 0 || report.NoLongerInRedis != 0 {
		t.Errorf("the second run: got %+v, expected 11 facts, none of them new or gone, in run 2", report)
	}
	if l.calls != callsBefore {
		t.Errorf("the second run made %d calls of Publish, expected none", l.calls-callsBefore)
	}
	if report := mustRun(t, imp.newRun()); report.Position == "" {
		t.Error("a run without new facts reported no position, expected that of the previous run")
	}

	// Add a play, replace a like, and add a follow without a time.
	r.keys["plays:bob"] = fakeKey{hash, []string{"i1", "1600000000000", "i2", "1600000000001"}}
	r.keys["likes:i1"] = fakeKey{set, []string{"ann"}}
	r.keys["following:bob"] = fakeKey{set, []string{"ann", "dan", "eve"}}
	report = mustRun(t, imp.newRun())
	if report.Run != 4 || report.New != 3 || report.Published != 3 || report.NoLongerInRedis != 1 {
		t.Errorf("after a change: got %+v, expected 3 new facts and one that is gone, in run 4", report)
	}
	checkEachFactOnce(t, l, eventsBefore+3)

	// A new fact without a time has the start of its run.
	const wantEvent = "user_followed bob eve    []  2026-03-04T06:06:07.000002Z"
	if l.eventCounts[wantEvent] != 1 {
		t.Errorf("got the events %v, expected %s once", l.eventCounts, wantEvent)
	}
	if files, err := filepath.Glob(filepath.Join(imp.State, "*-*")); err != nil || len(files) != 1 {
		t.Errorf("got the files %v and %v, expected only that of the known facts", files, err)
	}
}

// A fact without a time is not published if the same fact with a time is known, whichever was read
// first or in an earlier run.
func TestFactWithoutTimeDoesNotRepeatOneWithTime(t *testing.T) {
	r := &fakeRedis{keys: map[string]fakeKey{"followers:ann": {sortedSet, []string{"bob", "1600000000"}}}}
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	mustRun(t, imp)

	r.keys["following:bob"] = fakeKey{set, []string{"ann"}}
	if report := mustRun(t, imp.newRun()); report.New != 0 {
		t.Errorf("the second side of the fact: got %+v and the events %v, expected nothing new", report, l.eventCounts)
	}

	delete(r.keys, "followers:ann")
	if report := mustRun(t, imp.newRun()); report.New != 0 || report.NoLongerInRedis != 1 {
		t.Errorf("without the side with the time: got %+v and the events %v, expected nothing new and one that is gone",
			report, l.eventCounts)
	}
}

// largeRedis returns a Redis with more keys than are saved at once, and with keys of more than one
// page.
func largeRedis() *fakeRedis {
	r := &fakeRedis{keys: map[string]fakeKey{}}
	for u := range 25 {
		var follows, plays []string
		for i := range 30 {
			follows = append(follows, fmt.Sprintf("u%d", 100+i), fmt.Sprint(1_600_000_000+i))
			plays = append(plays, fmt.Sprintf("i%d", i), fmt.Sprint(1_600_000_000_000+int64(u)))
		}
		r.keys[fmt.Sprintf("followers:u%d", u)] = fakeKey{sortedSet, follows}
		r.keys[fmt.Sprintf("plays:u%d", u)] = fakeKey{hash, plays}
	}
	return r
}

// If reading is interrupted at any command, the import continues, and every fact is in the log
// once.
func TestInterruptedReadingContinues(t *testing.T) {
	r := largeRedis()
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100

	// Let each run make seven more commands, until one is not interrupted. Sometimes restart Redis in
	// between.
	interruptions := 0
	for failAt := 1; ; failAt += 7 {
		r.commands = 0
		r.fail = func(command int) error {
			if command >= failAt {
				return errBroken
			}
			return nil
		}
		if failAt%3 == 0 {
			r.run++
		}

		report, err := imp.newRun().readAndPublish(t.Context())
		if err == nil {
			if report.Found != 1500 || report.Published != 1500 {
				t.Errorf("got %+v, expected 1500 facts, all published", report)
			}
			break
		}

		if !errors.Is(err, errBroken) {
			t.Fatalf("interrupted at command %d: got %v, expected %v", failAt, err, errBroken)
		}
		interruptions++
		if interruptions > 100 {
			t.Fatalf("the import is not finished after %d interruptions, expected that each run continues the last one", interruptions)
		}
		if l.calls > 0 {
			t.Fatalf("interrupted at command %d: got %d calls of Publish, expected none before everything is read", failAt, l.calls)
		}
	}

	checkEachFactOnce(t, l, 1500)
	if interruptions < 5 {
		t.Errorf("the import was interrupted %d times, expected at least 5", interruptions)
	}
}

// An interrupted import continues at its cursor, not at the beginning.
func TestImportResumesAtItsCursor(t *testing.T) {
	r := largeRedis()
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100
	mustRun(t, imp)
	allCommands := r.commands

	// Import the same again, and interrupt the import shortly before its end. It begins at the same
	// moment and so has the same source. Clear the log's offsets of that source, as if it was
	// another log.
	clear(l.highestOffsets)
	imp.State = t.TempDir()
	r.commands = 0
	r.fail = func(command int) error {
		if command == allCommands-10 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.newRun().readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the interrupted run: got %v, expected %v", err, errBroken)
	}

	r.commands = 0
	r.fail = nil
	if report := mustRun(t, imp.newRun()); report.Found != 1500 {
		t.Errorf("got %+v, expected 1500 facts", report)
	}
	if r.commands > allCommands/2 {
		t.Errorf("the next run made %d commands, expected at most half of the %d commands of a whole import", r.commands, allCommands)
	}
}

// A server that does not name its runs may have been restarted, which makes a cursor invalid, so it
// is read from the beginning.
func TestImportRereadsServerWithoutRunID(t *testing.T) {
	r := largeRedis()
	r.hidesRunID = true
	imp := newTestRun(t, r, newFakeLog(t))
	imp.maxRecords = 100
	mustRun(t, imp)
	allCommands := r.commands

	// Interrupt the same import into another log in the middle.
	imp = newTestRun(t, r, newFakeLog(t))
	imp.maxRecords = 100
	r.commands = 0
	r.fail = func(command int) error {
		if command == allCommands/2 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.newRun().readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the interrupted run: got %v, expected %v", err, errBroken)
	}

	// Restart Redis, so that the cursor is invalid.
	r.run++
	r.fail = nil
	if report := mustRun(t, imp.newRun()); report.Found != 1500 {
		t.Errorf("got %d facts, expected 1500", report.Found)
	}
}

// checkEachFactOnce checks that the log has n events, each of them once.
func checkEachFactOnce(t *testing.T, l *fakeLog, n int) {
	t.Helper()
	if len(l.eventCounts) != n {
		t.Errorf("got %d events, expected %d", len(l.eventCounts), n)
	}
	for ev, count := range l.eventCounts {
		if count != 1 {
			t.Errorf("the log has the event %s %d times, expected once", ev, count)
		}
	}
}

// If publishing is interrupted at any call, before or after the log has accepted it, every fact is
// in the log once, also after later runs.
func TestInterruptedPublishingContinues(t *testing.T) {
	for _, isAccepted := range []bool{false, true} {
		r := largeRedis()
		l := newFakeLog(t)
		for u := range 200 {
			r.keys[fmt.Sprintf("likes:i%d", u)] = fakeKey{set, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}
		}
		imp := newTestRun(t, r, l)

		// Every other call fails, and ends the run.
		failedCalls := 0
		l.fail = func(call int) (before, after error) {
			if call%2 == 0 {
				return nil, nil
			}

			failedCalls++
			err := connect.NewError(connect.CodePermissionDenied, errBroken)
			if isAccepted {
				return nil, err
			}
			return err, nil
		}

		for runs := 1; ; runs++ {
			_, err := imp.newRun().readAndPublish(t.Context())
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) {
				t.Fatalf("run %d, failed calls are accepted %v: got %v, expected %v", runs, isAccepted, err, errBroken)
			}
			if runs > 21 {
				t.Fatalf("failed calls are accepted %v: the import is not finished after %d runs, expected at most 21", isAccepted, runs)
			}
		}

		l.fail = nil
		if report := mustRun(t, imp.newRun()); report.New != 0 {
			t.Errorf("the next run found %d new facts, expected none", report.New)
		}
		checkEachFactOnce(t, l, 3500)
		if failedCalls < 2 {
			t.Errorf("%d calls failed, expected at least 2", failedCalls)
		}
	}
}

// A fact is known only when the log has it. A run that could not publish leaves all facts to the
// next run.
func TestFactIsKnownOnlyWhenTheLogHasIt(t *testing.T) {
	l := newFakeLog(t)
	imp := newTestRun(t, smallRedis(), l)

	// The first run cannot publish.
	ctx, cancel := context.WithCancel(t.Context())
	l.fail = func(int) (before, after error) {
		cancel()
		return connect.NewError(connect.CodeUnavailable, errBroken), nil
	}
	if _, err := imp.readAndPublish(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("the first run: got %v, expected %v", err, context.Canceled)
	}
	s, err := loadState(imp.State)
	if err != nil || s.Phase != phasePublishing || s.Known != "" || s.Offset != 0 {
		t.Errorf("got the state %+v and %v, expected publishing at offset 0 without known facts", s, err)
	}

	// The second run begins an hour later, but continues with the recorded start.
	l.fail = nil
	imp = imp.newRun()
	imp.Now = func() time.Time { return start.Add(time.Hour) }
	mustRun(t, imp)
	checkEachFactOnce(t, l, 11)
	const wantEvent = "user_followed bob dan    []  2026-03-04T05:06:07Z"
	if l.eventCounts[wantEvent] != 1 {
		t.Errorf("got the events %v, expected %s once", l.eventCounts, wantEvent)
	}
}

// What was published to one log is new to another log.
func TestEverythingIsNewToAnotherLog(t *testing.T) {
	imp := newTestRun(t, smallRedis(), newFakeLog(t))
	first := mustRun(t, imp)

	other := newFakeLog(t)
	imp = imp.newRun()
	imp.LogID = "other"
	imp.Publish = other.publish
	var notices []string
	imp.Notice = func(s string) { notices = append(notices, s) }
	if report := mustRun(t, imp); report.New != 11 || len(other.eventCounts) != 11 || report.Source == first.Source {
		t.Errorf("got %+v and the events %v, expected 11 new facts from another source", report, other.eventCounts)
	}
	if !strings.Contains(strings.Join(notices, "\n"), "another log") {
		t.Errorf("got the notices %q, expected one about another log", notices)
	}

	// A restart publishes everything again.
	imp = imp.newRun()
	imp.Restart = true
	imp.Now = func() time.Time { return start.Add(time.Hour) }
	if report := mustRun(t, imp); report.New != 11 || other.eventCounts["played bob    i1 []  2020-09-13T12:26:40Z"] != 2 {
		t.Errorf("after a restart: got %+v and the events %v, expected 11 new facts, and the play twice", report, other.eventCounts)
	}
}

// If the mapping changes while Redis is read, Redis is read again from the beginning with the new
// mapping.
func TestChangedMappingReadsAnew(t *testing.T) {
	r := largeRedis()
	l := newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100

	r.fail = func(command int) error {
		if command == 30 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatalf("the interrupted run: got %v, expected %v", err, errBroken)
	}

	imp = imp.newRun()
	imp.Mapping = mustParse(t, `rules: [{means: reactions, key: "plays:{user}", field: "{item}"}]`)
	if report := mustRun(t, imp); report.Found != 750 || report.Run != 1 {
		t.Errorf("got %+v, expected 750 facts in the first run", report)
	}
	for ev := range l.eventCounts {
		if !strings.HasPrefix(ev, "reacted ") {
			t.Fatalf("got the event %s, expected only likes", ev)
		}
	}
}

func TestForeignStateIsRefused(t *testing.T) {
	imp := newTestRun(t, smallRedis(), newFakeLog(t))

	unlock, err := lockStateDir(imp.State)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := imp.readAndPublish(t.Context()); !errors.Is(err, ErrBusy) {
		t.Errorf("while another import has the directory, got %v, expected ErrBusy", err)
	}
	unlock()

	for text, want := range map[string]string{`{"version": 2}`: "version 2", "notes": "is no state"} {
		if err := os.WriteFile(filepath.Join(imp.State, stateName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := imp.newRun().readAndPublish(t.Context()); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("state %s: got %v, expected ErrState with %q", text, err, want)
		}
	}
}

func TestDryRunPublishesNothing(t *testing.T) {
	l := newFakeLog(t)
	imp := newTestRun(t, smallRedis(), l)
	report, err := imp.dryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.calls != 0 {
		t.Errorf("got %d calls of Publish, expected none", l.calls)
	}
	if len(report.Sample) != sampleSize {
		t.Errorf("got a sample of %d facts, expected %d", len(report.Sample), sampleSize)
	}
	if report.Rejected < 6 || len(report.SampleRejects) < 6 {
		t.Errorf("got %d rejects and a sample of %d, expected at least 6 of both", report.Rejected, len(report.SampleRejects))
	}
	if files, err := os.ReadDir(imp.State); err != nil || len(files) > 0 {
		t.Errorf("got the files %v and %v after a dry run, expected none", files, err)
	}
}
