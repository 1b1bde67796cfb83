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
		"followers:ann": {sortedSet, []string{"bob", "1600000000", "cid", "1600000001.5", "ann", "1", "b d", "2", "late", "1e12", "soon", "1772600768"}},
		"following:bob": {set, []string{"ann", "dan"}},
		"plays:bob":     {hash, []string{"i1", "1600000000000", "i2", "x"}},
		"likes:i1":      {set, []string{"bob", "\xff\x00"}},
		"likes:i2":      {list, []string{"bob"}},
		"served:bob":    {list, []string{"i1", "i2", "i3", "i4", "i5", "i1"}},
		"gone:x":        {set, []string{"y"}},
	}}
}

func TestRedisFactsAreInTheLog(t *testing.T) {
	r, l := smallRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	report := mustRun(t, imp)

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
	if diff := cmp.Diff(want, l.taken); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if report.Found != 11 || report.New != 11 || report.Published != 11 || report.Rejected != 6 || report.Clamped != 1 || report.Run != 1 {
		t.Errorf("got the report %+v", report)
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
	r, l := &fakeRedis{keys: map[string]fakeKey{
		"a": {set, []string{"x"}}, "b": {list, []string{"x"}}, "c": {hash, []string{"x", "y"}}, "d": {"string", nil},
	}}, newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.Mapping = mustParse(t, "rules:\n- {means: reactions, key: '{user}', member: '{item}'}\n- {means: plays, key: '{user}', field: '{item}'}\n"+
		"- {means: served, key: '{user}', element: '{item}'}\n")

	report := mustRun(t, imp)
	want := map[string]int{
		"reacted a    x []  2026-03-04T05:06:07Z": 1, "played c    x []  2026-03-04T05:06:07Z": 1, "served b     [x]  2026-03-04T05:06:07Z": 1,
	}
	if diff := cmp.Diff(want, l.taken); diff != "" || report.Rejected != 1 {
		t.Errorf("got %+v, expected one reject; events (-want +got):\n%s", report, diff)
	}
}

// A second run publishes nothing if Redis has not changed, and otherwise only what has changed.
// Plays count once.
func TestSecondRunPublishesOnlyNewFacts(t *testing.T) {
	r, l := smallRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	mustRun(t, imp)
	calls, taken := l.calls, len(l.taken)

	r.run++ // as if Redis was restarted, so that it lists keys in another order
	imp = imp.again()
	imp.Now = func() time.Time { return start.Add(time.Hour) }
	if report := mustRun(t, imp); report.New != 0 || report.NoLongerInRedis != 0 || report.Found != 11 || l.calls != calls || report.Run != 2 {
		t.Errorf("the second run made %d calls and reported %+v, expected no calls and nothing new", l.calls-calls, report)
	}
	if report := mustRun(t, imp.again()); report.Position == "" {
		t.Error("expected a run without new facts to report the position of the previous run")
	}

	r.keys["plays:bob"] = fakeKey{hash, []string{"i1", "1600000000000", "i2", "1600000000001"}}
	r.keys["likes:i1"] = fakeKey{set, []string{"ann"}}
	r.keys["following:bob"] = fakeKey{set, []string{"ann", "dan", "eve"}}
	report := mustRun(t, imp.again())
	if report.New != 3 || report.Published != 3 || report.NoLongerInRedis != 1 || len(l.taken) != taken+3 || report.Run != 4 {
		t.Errorf("after a change, got %d new events and %+v, expected 3 events and one fact that is gone", len(l.taken)-taken, report)
	}
	for ev, n := range l.taken {
		if n != 1 {
			t.Errorf("the log has %s %d times", ev, n)
		}
	}

	if l.taken["user_followed bob eve    []  2026-03-04T06:06:07.000002Z"] != 1 {
		t.Errorf("expected a new fact without a time to have the start of its run, got %v", l.taken)
	}
	if left, err := filepath.Glob(filepath.Join(imp.State, "*-*")); err != nil || len(left) != 1 {
		t.Errorf("got the files %v and %v, expected only the known facts", left, err)
	}
}

// A fact without a time is not published if the same fact with a time is known, whichever was read
// first or in an earlier run.
func TestFactWithoutTimeDoesNotRepeatOneWithTime(t *testing.T) {
	r, l := &fakeRedis{keys: map[string]fakeKey{"followers:ann": {sortedSet, []string{"bob", "1600000000"}}}}, newFakeLog(t)
	imp := newTestRun(t, r, l)
	mustRun(t, imp)

	r.keys["following:bob"] = fakeKey{set, []string{"ann"}}
	if report := mustRun(t, imp.again()); report.New != 0 {
		t.Errorf("the second side of the fact: got %+v and the events %v, expected nothing new", report, l.taken)
	}

	delete(r.keys, "followers:ann")
	if report := mustRun(t, imp.again()); report.New != 0 || report.NoLongerInRedis != 1 {
		t.Errorf("without the side with the time: got %+v and the events %v, expected nothing new and one that is gone", report, l.taken)
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
	r, l := largeRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100

	tries := 0
	for step := 1; ; step += 7 {
		r.commands = 0
		r.fail = func(command int) error {
			if command >= step {
				return errBroken
			}
			return nil
		}
		if step%3 == 0 {
			r.run++ // as if Redis was restarted
		}

		report, err := imp.again().readAndPublish(t.Context())
		if err == nil {
			if report.Found != 1500 || report.Published != 1500 {
				t.Errorf("got %+v, expected 1500 facts, all published", report)
			}
			break
		}

		if tries++; !errors.Is(err, errBroken) || tries > 100 {
			t.Fatal(err)
		}
		if l.calls > 0 {
			t.Fatal("something was published before everything was read")
		}
	}

	checkEachFactOnce(t, l, 1500)
	if tries < 5 {
		t.Errorf("the import was interrupted only %d times", tries)
	}
}

// An interrupted import continues at its cursor, not at the beginning.
func TestImportResumesAtItsCursor(t *testing.T) {
	r, l := largeRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100
	mustRun(t, imp)
	whole := r.commands

	// Import the same again, and interrupt the import shortly before its end. It begins at the same
	// moment and so has the same source. Clear the log's sequences of that source, as if it was
	// another log.
	clear(l.highest)
	imp.State, r.commands = t.TempDir(), 0
	r.fail = func(command int) error {
		if command == whole-10 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.again().readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}

	r.commands, r.fail = 0, nil
	if report := mustRun(t, imp.again()); report.Found != 1500 || r.commands > whole/2 {
		t.Errorf("got %+v after %d commands, expected 1500 facts after at most half of %d", report, r.commands, whole)
	}
}

// A server that does not name its runs may have been restarted, which makes a cursor invalid, so it
// is read from the beginning.
func TestImportRereadsServerWithoutRunID(t *testing.T) {
	r := largeRedis()
	r.unnamed = true
	imp := newTestRun(t, r, newFakeLog(t))
	imp.maxRecords = 100
	mustRun(t, imp)
	whole := r.commands

	// The same import into another log, interrupted in the middle.
	imp = newTestRun(t, r, newFakeLog(t))
	imp.maxRecords = 100
	r.commands = 0
	r.fail = func(command int) error {
		if command == whole/2 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.again().readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}

	r.run++
	r.fail = nil
	if report := mustRun(t, imp.again()); report.Found != 1500 {
		t.Errorf("found %d facts, expected 1500", report.Found)
	}
}

// checkEachFactOnce checks that the log has n events, each of them once.
func checkEachFactOnce(t *testing.T, l *fakeLog, n int) {
	t.Helper()
	if len(l.taken) != n {
		t.Errorf("got %d events, expected %d", len(l.taken), n)
	}
	for ev, times := range l.taken {
		if times != 1 {
			t.Errorf("the log has %s %d times", ev, times)
		}
	}
}

// If publishing is interrupted at any call, before or after the log has accepted it, every fact is
// in the log once, also after later runs.
func TestInterruptedPublishingContinues(t *testing.T) {
	for _, after := range []bool{false, true} {
		r, l := largeRedis(), newFakeLog(t)
		for u := range 200 {
			r.keys[fmt.Sprintf("likes:i%d", u)] = fakeKey{set, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}}
		}
		imp := newTestRun(t, r, l)

		failed := 0
		l.fail = func(call int) (error, error) {
			if call%2 == 0 {
				return nil, nil
			}

			failed++
			refused := connect.NewError(connect.CodePermissionDenied, errBroken)
			if after {
				return nil, refused
			}
			return refused, nil
		}

		for tries := 0; ; tries++ {
			_, err := imp.again().readAndPublish(t.Context())
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) || tries > 20 {
				t.Fatal(err)
			}
		}

		l.fail = nil
		if report := mustRun(t, imp.again()); report.New != 0 {
			t.Errorf("the next run found %d new facts, expected none", report.New)
		}
		checkEachFactOnce(t, l, 3500)
		if failed < 2 {
			t.Errorf("only %d calls failed, expected at least 2", failed)
		}
	}
}

// A fact is known only when the log has it. A run that could not publish leaves all facts to the
// next run.
func TestFactIsKnownOnlyWhenTheLogHasIt(t *testing.T) {
	r, l := smallRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)

	ctx, cancel := context.WithCancel(t.Context())
	l.fail = func(int) (error, error) {
		cancel()
		return connect.NewError(connect.CodeUnavailable, errBroken), nil
	}
	if _, err := imp.readAndPublish(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	s, err := loadState(imp.State)
	if err != nil || s.Phase != phasePublishing || s.Known != "" || s.Offset != 0 {
		t.Errorf("got the state %+v and %v, expected publishing at offset 0 without known facts", s, err)
	}

	l.fail = nil
	imp = imp.again()
	imp.Now = func() time.Time { return start.Add(time.Hour) } // without effect: the start of the interrupted run is recorded
	mustRun(t, imp)
	checkEachFactOnce(t, l, 11)
	if l.taken["user_followed bob dan    []  2026-03-04T05:06:07Z"] != 1 {
		t.Errorf("expected a fact without a time to have the recorded start, got %v", l.taken)
	}
}

// What was published to one log is new to another log.
func TestEverythingIsNewToAnotherLog(t *testing.T) {
	r, l := smallRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	first := mustRun(t, imp)

	other := newFakeLog(t)
	imp = imp.again()
	var notices []string
	imp.LogID, imp.Publish, imp.Notice = "other", other.publish, func(s string) { notices = append(notices, s) }
	if report := mustRun(t, imp); report.New != 11 || len(other.taken) != 11 || report.Source == first.Source {
		t.Errorf("got %+v and the events %v, expected 11 new facts from another source", report, other.taken)
	}
	if !strings.Contains(strings.Join(notices, "\n"), "another log") {
		t.Errorf("expected a notice about another log, got %q", notices)
	}

	imp = imp.again()
	imp.Restart = true
	imp.Now = func() time.Time { return start.Add(time.Hour) }
	if report := mustRun(t, imp); report.New != 11 || other.taken["played bob    i1 []  2020-09-13T12:26:40Z"] != 2 {
		t.Errorf("expected a restart to publish everything again, got %+v and the events %v", report, other.taken)
	}
}

// If the mapping changes while Redis is read, Redis is read again from the beginning with the new
// mapping.
func TestChangedMappingReadsAnew(t *testing.T) {
	r, l := largeRedis(), newFakeLog(t)
	imp := newTestRun(t, r, l)
	imp.maxRecords = 100

	r.fail = func(command int) error {
		if command == 30 {
			return errBroken
		}
		return nil
	}
	if _, err := imp.readAndPublish(t.Context()); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}

	imp = imp.again()
	imp.Mapping = mustParse(t, `rules: [{means: reactions, key: "plays:{user}", field: "{item}"}]`)
	if report := mustRun(t, imp); report.Found != 750 || report.Run != 1 {
		t.Errorf("got %+v, expected 750 facts in the first run", report)
	}
	for ev := range l.taken {
		if !strings.HasPrefix(ev, "reacted ") {
			t.Fatalf("expected only likes, got %s", ev)
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
		if _, err := imp.again().readAndPublish(t.Context()); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("state %s: got %v, expected ErrState with %q", text, err, want)
		}
	}
}

func TestDryRunPublishesNothing(t *testing.T) {
	l := newFakeLog(t)
	imp := newTestRun(t, smallRedis(), l)
	report, err := imp.dryRun(t.Context())
	if err != nil || l.calls != 0 || report.Rejected < 6 || len(report.Sample) != sampleSize || len(report.SampleRejects) < 6 {
		t.Errorf("got %d calls, %+v and %v, expected no calls, all rejects and a sample", l.calls, report, err)
	}
	if left, err := os.ReadDir(imp.State); err != nil || len(left) > 0 {
		t.Errorf("expected no files after a dry run, got %v and %v", left, err)
	}
}
