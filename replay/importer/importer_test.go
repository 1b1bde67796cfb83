package importer

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// fakeLog accepts events as the service does: it validates each, appends it, and ignores it if its
// offset is not above the highest one of its source and kind.
type fakeLog struct {
	t     *testing.T
	calls int // calls of publish
	// appended are the events in the log, and described are the same events as text.
	appended  []events.Event
	described []string
	// highestOffsets has the highest offset of each source and kind.
	highestOffsets map[string]uint64
	// fail returns the errors of a call, which counts from 1. An error before replaces the call; an
	// error after is returned although the call was made. A nil fail returns no errors.
	fail func(call int) (before, after error)
}

func newFakeLog(t *testing.T) *fakeLog { return &fakeLog{t: t, highestOffsets: map[string]uint64{}} }

// publish implements the method Publish of the service.
func (l *fakeLog) publish(_ context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
	l.calls++
	var before, after error
	if l.fail != nil {
		before, after = l.fail(l.calls)
	}
	if before != nil {
		return nil, before
	}

	if n := len(req.GetEvents()); n == 0 || n > 1000 || proto.Size(req) > events.MaxEnvelopeBytes {
		l.t.Errorf("got a call of %d events and %d bytes, expected 1 to 1000 events and at most %d bytes",
			n, proto.Size(req), events.MaxEnvelopeBytes)
	}

	res := &skeinv1.PublishResponse{Position: fmt.Sprint("after call ", l.calls)}
	for i, ev := range req.GetEvents() {
		flat, refused := events.FromProto(ev)
		if refused != nil || flat.User == "refused" {
			res.Rejections = append(res.Rejections, &skeinv1.Rejection{Index: int32(i), Message: "not\there"})
			continue
		}
		res.AcceptedCount++

		key := fmt.Sprint(flat.Source, flat.Kind)
		if flat.Offset > l.highestOffsets[key] {
			l.highestOffsets[key] = flat.Offset
			l.appended = append(l.appended, flat)
			l.described = append(l.described, describeEvent(&flat))
		} else {
			res.RepeatedIndexes = append(res.RepeatedIndexes, int32(i))
		}
	}
	return res, after
}

// describeEvent describes an event in one line.
func describeEvent(ev *events.Event) string {
	timeText := ev.Time.Time().Format(time.DateTime)
	switch ev.Kind {
	case events.PinCreated:
		text := fmt.Sprintf("%d %v %s/%s on %q item %s", ev.Offset, ev.Kind, ev.User, ev.Pin, ev.Board, ev.Item)
		if ev.RepinUser != "" {
			text += fmt.Sprintf(" of %s/%s", ev.RepinUser, ev.RepinPin)
		}
		return fmt.Sprintf("%s %q %s", text, ev.Attributes, timeText)
	case events.Played, events.Reacted, events.ItemHidden:
		return fmt.Sprintf("%d %v %s %s %s", ev.Offset, ev.Kind, ev.User, ev.Item, timeText)
	}

	text := fmt.Sprintf("%d %v %s %s%s %q %s", ev.Offset, ev.Kind, ev.User, ev.Peer, ev.Board, ev.Title, timeText)
	for _, s := range []struct {
		setting events.FollowSettings
		name    string
	}{{events.SettingHideRepins, "hide_repins"}, {events.SettingNotify, "notify"}, {events.SettingFavorite, "favorite"}} {
		if ev.Settings.Has(s.setting) {
			text += " " + s.name
		}
	}
	if ev.Until != 0 {
		text += " until " + ev.Until.Time().Format(time.DateTime)
	}
	return text
}

// start is the time at which imports start.
var start = time.Date(2026, 3, 4, 5, 6, 7, 89, time.UTC)

// options returns the options of an import of follows from a file with this text.
func options(t *testing.T, l *fakeLog, text string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "edges.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{
		Kind: Follows, Path: path,
		PublishOptions: PublishOptions{LogID: "log", Publish: l.publish, Now: func() time.Time { return start }},
	}
}

// mustAllow parses how many records may be rejected.
func mustAllow(t *testing.T, text string) MaxRejects {
	t.Helper()
	var m MaxRejects
	if err := m.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return m
}

func mustRun(t *testing.T, o Options) *Report {
	t.Helper()
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestFollowsOfAFileAreInTheLog(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "follower,user,time\nann,bob,2009-09-29\nann,ann,2009-09-29\nbad id,bob,2009-09-29\n"+
		"ann,bob,yesterday\nrefused,bob,2009-09-30\ncid,bob,2026-03-05\nann,bob,2008-01-01\n")
	o.MaxRejects = mustAllow(t, "3")
	report := mustRun(t, o)

	if diff := cmp.Diff([]string{
		`1 user_followed ann bob "" 2009-09-29 00:00:00`,
		`6 user_followed cid bob "" 2026-03-04 05:06:07`, // a time up to a day after the start is changed to the start
		`7 user_followed ann bob "" 2008-01-01 00:00:00`,
	}, l.described); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if report.Records != 7 || report.Events != 3 || report.Rejected != 4 || report.Clamped != 1 {
		t.Errorf("got %+v, expected 7 records, 3 events, 4 rejects and one time that was clamped", report)
	}

	// The list of rejects has each record with its reason.
	got, err := os.ReadFile(report.Rejects)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ record, reason, line string }{
		{"row", "reason", "line"},
		{"2", "must not be the acting user", "ann,ann,2009-09-29"},
		{"3", "user_followed.user_id", "bad id,bob,2009-09-29"},
		{"4", `the time "yesterday" is no time`, "ann,bob,yesterday"},
		{"5", "not here", "refused,bob,2009-09-30"}, // by the service
	}
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("got %d lines of rejects, expected %d:\n%s", len(lines), len(want), got)
	}
	for i, w := range want {
		parts := strings.SplitN(lines[i], "\t", 3)
		if len(parts) != 3 || parts[0] != w.record || !strings.Contains(parts[1], w.reason) || parts[2] != w.line {
			t.Errorf("got the reject %q, expected record %q, a reason with %q and line %q", parts, w.record, w.reason, w.line)
		}
	}
}

func TestBoardsOfAFileAreInTheLog(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "owner,board,title,follower\nann,bread,Bread,\nann,bread,,bob\nann,cakes,Cakes,bob\nann,,,bob\n"+
		"ann,,,\nann,,Main,bob\nann,tea,,ann\nann,tea,"+strings.Repeat("x", 257)+",\n")
	o.Kind, o.MaxRejects = Boards, mustAllow(t, "4")
	report := mustRun(t, o)

	if diff := cmp.Diff([]string{
		`1 board_created ann bread "Bread" 2026-03-04 05:06:07`,
		`2 board_followed bob annbread "" 2026-03-04 05:06:07`,
		`3 board_created ann cakes "Cakes" 2026-03-04 05:06:07`,
		`3 board_followed bob anncakes "" 2026-03-04 05:06:07`,
		`4 board_followed bob ann "" 2026-03-04 05:06:07`,
	}, l.described); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// Rejected are a row that would create the default board, one that would title it, a user who
	// follows an own board, and a title that is too long.
	if report.Rejected != 4 || report.Events != 5 {
		t.Errorf("got %+v, expected 5 events and 4 rejects", report)
	}
}

func followLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "u%d,v%d\n", i, i)
	}
	return b.String()
}

func TestCompressedFilesAreUnpacked(t *testing.T) {
	text := followLines(10)

	var gz, zst bytes.Buffer
	gw := gzip.NewWriter(&gz)
	zw, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{gw, zw} {
		_, err := io.WriteString(w, text)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}

	for name, packed := range map[string]string{"plain": text, "gzip": gz.String(), "zstd": zst.String()} {
		if report := mustRun(t, options(t, newFakeLog(t), packed)); report.Events != 10 {
			t.Errorf("%s: got %d events, expected 10", name, report.Events)
		}
	}

	broken := options(t, newFakeLog(t), gz.String()[:gz.Len()-12])
	if _, err := Run(t.Context(), broken); err == nil || !strings.Contains(err.Error(), "unexpected EOF") {
		t.Errorf("a truncated gzip file: got %v, expected an unexpected EOF", err)
	}
}

// The first record of a pair counts, and its own number is its offset.
func TestFirstRecordOfAPairCounts(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "1 2 1254192988\n2 1 1254192989\n1 2 1254192990\n3 3 1254192990\n1 3 1254192991\n")
	o.First, o.MaxRejects = true, mustAllow(t, "1")
	if report := mustRun(t, o); report.Skipped != 1 || report.Events != 3 || report.Rejected != 1 {
		t.Errorf("got %+v, expected 3 events, one skipped record and one reject", report)
	}
	if diff := cmp.Diff([]string{
		`1 user_followed 1 2 "" 2009-09-29 02:56:28`, `2 user_followed 2 1 "" 2009-09-29 02:56:29`,
		`5 user_followed 1 3 "" 2009-09-29 02:56:31`,
	}, l.described); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Whatever the service answers in between, every record arrives once and in order.
func TestRetriedRecordsArriveOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t)

		// Of each four calls, the first is not made, and the second is made without an answer.
		lost := errors.New("the answer was lost")
		l.fail = func(call int) (before, after error) {
			switch call % 4 {
			case 1:
				return connect.NewError(connect.CodeUnavailable, errors.New("no log")), nil
			case 2:
				return nil, connect.NewError(connect.CodeUnknown, lost)
			}
			return nil, nil
		}

		o := options(t, l, followLines(5500))
		var retried int
		o.Observe = func(p Progress) {
			if p.Retrying != nil {
				retried++
			}
		}

		report := mustRun(t, o)
		if report.Events != 5500 || len(l.described) != 5500 {
			t.Errorf("got %d events in the report and %d in the log, expected 5500 in both", report.Events, len(l.described))
		}
		if retried == 0 {
			t.Error("the import observed no retry, expected some")
		}
	})
}

// A final error ends the import at once. If there is no answer, the import ends when its patience
// does.
func TestImportGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code, maxCalls := range map[connect.Code]int{connect.CodePermissionDenied: 1, connect.CodeUnavailable: 9} {
			l := newFakeLog(t)
			l.fail = func(int) (before, after error) { return connect.NewError(code, errors.New("no")), nil }
			o := options(t, l, followLines(10))
			o.Patience = 10 * time.Second

			_, err := Run(t.Context(), o)
			if connect.CodeOf(err) != code || l.calls < 1 || l.calls > maxCalls {
				t.Errorf("code %v: got %v after %d calls, expected an error with this code after 1 to %d calls", code, err, l.calls, maxCalls)
			}
		}
	})
}

// An import that is interrupted anywhere continues where it was, and an import that is repeated
// changes nothing.
func TestInterruptedImportContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog(t)
		text := followLines(3000) + "bad row\n" + followLines(3000) + "self,self\n" + followLines(3000)
		o := options(t, l, text)
		o.MaxRejects = mustAllow(t, "2")
		var notices []string
		o.Notice = func(s string) { notices = append(notices, s) }

		// The import saves its state at most once a second. Let every call take a second, so that
		// it saves after each.
		o.Publish = func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
			<-time.After(time.Second)
			return l.publish(ctx, req)
		}

		// Interrupt each run three calls later, until one is not interrupted.
		for interruptedCall := 3; ; interruptedCall += 3 {
			ctx, cancel := context.WithCancel(t.Context())
			l.fail = func(call int) (before, after error) {
				if call == interruptedCall {
					cancel()
				}
				return nil, nil
			}

			report, err := Run(ctx, o)
			cancel()
			if err == nil {
				if report.Records != 9002 || report.Events != 9000 || report.Rejected != 2 || report.Sent >= 9000 {
					t.Errorf("got %+v, expected 9000 events of 9002 records, fewer of them sent by the last run", report)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("interrupted at call %d: got %v, expected %v", interruptedCall, err, context.Canceled)
			}
			if interruptedCall > 30 {
				t.Fatalf("the import is not finished after call %d, expected that each run continues the last one", interruptedCall)
			}

			// The next run begins later, but continues with the recorded start.
			o.Now = func() time.Time { return start.Add(time.Hour) }
		}

		// The log has every event once, with the time of the first start.
		if len(l.described) != 9000 {
			t.Errorf("got %d events in the log, expected 9000", len(l.described))
		}
		for _, ev := range l.described {
			if !strings.HasSuffix(ev, "2026-03-04 05:06:07") {
				t.Fatalf("got the event %s, expected the start of the first run as its time", ev)
			}
		}
		rejects, err := os.ReadFile(o.Path + ".rejects.tsv")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(rejects), "\n"); got != 3 {
			t.Errorf("got the list of rejects\n%s\nexpected a heading and two rejects", rejects)
		}

		// The log ignores the events of a repeated run.
		l.fail = nil
		report := mustRun(t, o)
		if report.Sent != 9000 || report.Events != 0 || report.Ignored != 9000 || report.Rejected != 2 {
			t.Errorf("a repeated run: got %+v, expected 9000 events sent, all of them ignored, and 2 rejects", report)
		}
		if len(l.described) != 9000 {
			t.Errorf("a repeated run: got %d events in the log, expected still 9000", len(l.described))
		}
		if last := notices[len(notices)-1]; !strings.Contains(last, "imported before") {
			t.Errorf("a repeated run: got the notice %q, expected one that the file was imported before", last)
		}

		// The state of an import into one log is not continued into another log.
		other := newFakeLog(t)
		o.LogID = "another log"
		o.Publish = other.publish
		if mustRun(t, o); len(other.described) != 9000 {
			t.Errorf("got %d events in another log, expected 9000", len(other.described))
		}
	})
}

// The state of another import is never continued.
func TestStateOfAnotherImportIsRefused(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "1 2 1254192988\n")
	mustRun(t, o)

	checkRefused := func(o Options, want string) {
		t.Helper()
		if _, err := Run(t.Context(), o); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected ErrState with %q", err, want)
		}
	}

	other := o
	other.First = true
	checkRefused(other, "--first")

	other = o
	other.Source = "mine"
	checkRefused(other, "source")

	other = o
	other.Format.Columns = []string{"user", "follower"}
	checkRefused(other, "columns")

	// A later export of the same data has the same name. It must be another source, or the log
	// would ignore its events.
	if err := os.WriteFile(o.Path, []byte("1 3 1254192988\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	checkRefused(o, "content")
	o.Restart = true
	if mustRun(t, o); len(l.described) != 2 {
		t.Errorf("after a restart with the later export, got the events %v, expected 2", l.described)
	}

	if err := os.WriteFile(o.Path+".skein-import.json", []byte(`{"version": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Restart = false
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("state of a later version: got %v, expected an error with its version", err)
	}
}

// A file that happens to have the name of the rejects is not overwritten.
func TestForeignFileIsNotOverwrittenByRejects(t *testing.T) {
	o := options(t, newFakeLog(t), followLines(2))
	if err := os.WriteFile(o.Path+".rejects.tsv", []byte("my notes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "--rejects") {
		t.Errorf("got %v, expected an error that names --rejects", err)
	}
}

// If a file has more bad rows than allowed, the import leaves the list of these rows, but no state
// that a later run would continue.
func TestRefusedImportKeepsItsRejects(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "owner,board,title\nann,b1,Bread\nann,b 2,\"two\nlines\t\x1b[2J\"\nann,b3,Cakes\n")
	o.Kind = Boards

	report, err := Run(t.Context(), o)
	if !errors.Is(err, ErrRejected) || l.calls > 0 {
		t.Fatalf("got %v after %d calls, expected ErrRejected after none", err, l.calls)
	}
	if report.Rejected != 1 || report.Events != 2 || !report.Unpublished {
		t.Errorf("got %+v, expected 2 events and one reject of an import that published nothing", report)
	}

	want := "row\treason\tline\n" +
		"2\tboard_created.board.board_id must be 1 to 128 bytes of UTF-8 without white space, control characters, " +
		"bidirectional controls and noncharacters\t" +
		"ann,b 2,\"two\\nlines\t\\x1b[2J\"\n"
	got, err := os.ReadFile(o.Path + ".rejects.tsv")
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("rejects (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(o.Path + ".skein-import.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for the state, expected that it does not exist", err)
	}

	// The import can be repeated with a higher limit.
	o.MaxRejects = mustAllow(t, "1")
	if report := mustRun(t, o); report.Events != 2 || report.Rejected != 1 || len(l.described) != 2 {
		t.Errorf("got %+v and %d events in the log, expected 2 events and one reject", report, len(l.described))
	}
}

func TestFileThatChangesFailsTheImport(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, followLines(10))
	o.Publish = func(ctx context.Context, req *skeinv1.PublishRequest) (*skeinv1.PublishResponse, error) {
		if err := os.WriteFile(o.Path, []byte(followLines(11)), 0o600); err != nil {
			t.Error(err)
		}
		return l.publish(ctx, req)
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "was changed while it was imported") {
		t.Errorf("got %v, expected an error about the change", err)
	}
}

func TestDryRunPublishesNothing(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, "ann,bob\nann,ann\nbob,ann\n")
	o.Format.Header = HeaderNo
	o.DryRun, o.MaxRejects = true, mustAllow(t, "1")
	report := mustRun(t, o)

	if l.calls != 0 {
		t.Errorf("got %d calls of Publish, expected none", l.calls)
	}
	if report.Records != 3 || report.Events != 2 || len(report.Sample) != 2 || len(report.SampleRejects) != 1 {
		t.Errorf("got %+v, expected 3 records, 2 events with samples, and a sample of 1 reject", report)
	}
	if files, err := filepath.Glob(o.Path + "?*"); err != nil || len(files) > 0 {
		t.Errorf("got the files %v, %v after a dry run, expected none", files, err)
	}
}

// Calls of the largest records do not exceed the size limit; fakeLog would reject them.
func TestCallsOfLargestRecordsFit(t *testing.T) {
	l := newFakeLog(t)
	long := strings.Repeat("x", 126)
	var b strings.Builder
	b.WriteString("owner,board,title,follower\n")
	for i := range 1200 {
		fmt.Fprintf(&b, "o%s,b%s,%s,%d%s\n", long, long, strings.Repeat("t", 256), i%10, long)
	}

	o := options(t, l, b.String())
	o.Kind, o.Source = Boards, strings.Repeat("s", 64)
	if mustRun(t, o); len(l.described) != 2400 {
		t.Errorf("got %d events in the log, expected 2400", len(l.described))
	}
}

func TestSourceNamesFileAndContent(t *testing.T) {
	for path, want := range map[string]string{
		"dir/follows.csv.gz":             "follows.csv.gz-01234567",
		"my follows\t.csv":               "my_follows_.csv-01234567",
		strings.Repeat("é", 60) + ".csv": strings.Repeat("é", 27) + "-01234567",
		"\xff.csv":                       "_.csv-01234567",
	} {
		got := SourceOf(path, "0123456789abcdef")
		if got != want {
			t.Errorf("SourceOf(%q) = %q, want %q", path, got, want)
		}
	}
}

// If the log already has the source of an import, the import ends with its first row, even when it
// is repeated. No row of the file is imported, although the log would have accepted the later ones.
func TestSourceOfAnotherFileImportsNothing(t *testing.T) {
	l := newFakeLog(t)
	first := options(t, l, followLines(3))
	first.Source = "mine"
	mustRun(t, first)

	second := options(t, l, followLines(2000))
	second.Source = "mine"
	for range 2 {
		if _, err := Run(t.Context(), second); !errors.Is(err, ErrSourceUsed) || !strings.Contains(err.Error(), `"mine"`) {
			t.Errorf("got %v, expected ErrSourceUsed with the name of the source", err)
		}
	}
	if len(l.described) != 3 {
		t.Errorf("got %d events in the log, expected the 3 of the first file", len(l.described))
	}

	second.Source = "another"
	if report := mustRun(t, second); report.Events != 2000 || report.Ignored != 0 {
		t.Errorf("with another source: got %d events, %d ignored, expected 2000 and 0", report.Events, report.Ignored)
	}
}

// If a file is imported again after its state was lost, the report says that no event was accepted.
func TestIgnoredEventsAreNotCounted(t *testing.T) {
	l := newFakeLog(t)
	o := options(t, l, followLines(1500))
	mustRun(t, o)

	o.Restart = true
	report := mustRun(t, o)
	if report.Events != 0 || report.Ignored != 1500 || !report.OwnSource {
		t.Errorf("got %d events, %d ignored, own source %v, expected 0, 1500, true", report.Events, report.Ignored, report.OwnSource)
	}
}
