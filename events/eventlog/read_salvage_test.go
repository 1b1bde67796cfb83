package eventlog

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

// mustSalvage salvages the stream after a cursor and returns the envelopes and the report.
func mustSalvage(t *testing.T, l *Log, after events.Cursor) (envs []*events.Envelope, report SalvageReport) {
	t.Helper()
	report, err := l.Salvage(testContext(t), after, nil, func(more []*events.Envelope) error {
		envs = append(envs, more...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return envs, report
}

// Salvage returns the envelopes of a stream as a reader would have read them. If messages are gone,
// it returns the others and lists the lost ones.
func TestSalvageReadsWhatIsLeft(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(30).Example(9))
		all := readWholeLog(t, l)
		for seq := range all {
			from := l.Start()
			if seq > 0 {
				from = all[seq-1].Cursor
			}
			envs, report := mustSalvage(t, l, from)
			checkSameEnvelopes(t, "salvaged", envs, all, uint64(seq))
			repeats, err := l.RepeatsAt(testContext(t), all[29].Cursor)
			if err != nil || !slices.Equal(repeats, report.Repeats) || len(report.Lost) > 0 ||
				report.Head != toArchivalCursor(all[29].Cursor) || report.Envelopes != uint64(30-seq) {
				t.Fatalf("salvage from %d: got %+v and error %v, want %d envelopes up to %+v, nothing lost, and the repeats %v",
					seq, report, err, 30-seq, toArchivalCursor(all[29].Cursor), repeats)
			}
		}

		deleteMessages(t, l, 1, 2, 12, 20, 21, 30)
		envs, report := mustSalvage(t, l, all[9].Cursor)
		if want := []SeqRange{{12, 12}, {20, 21}, {30, 30}}; !slices.Equal(report.Lost, want) || len(envs) != 16 {
			t.Errorf("salvage from 10: got %d envelopes and lost %v, want 16 and %v", len(envs), report.Lost, want)
		}
		if _, report = mustSalvage(t, l, l.Start()); report.Lost[0] != (SeqRange{1, 2}) {
			t.Errorf("lost from the start: got %v, want 1 to 2 first", report.Lost)
		}
		full := errors.New("full")
		if _, err := l.Salvage(testContext(t), l.Start(), nil, func([]*events.Envelope) error { return full }); !errors.Is(err, full) {
			t.Errorf("salvage into a full archive: got error %v, want %v", err, full)
		}
	})
}

// If a block file of the stream is damaged, Salvage returns what the server can still read of it,
// and lists all other sequences as lost.
func TestSalvageReportsDamageInFile(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	l := mustOpenLog(t, cfg)
	p := newPublisher(t, l, PublisherOptions{})
	for n := range 40 {
		mustPublish(t, p, newFollows(n, n+1))
	}
	all := readWholeLog(t, l)
	closeLog(t, l)
	path := listBlockFiles(t, cfg.Dir)[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{len(data) / 2, len(data)/2 + 1} {
		data[at] ^= 0x55
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l = mustOpenLog(t, cfg)
	envs, report := mustSalvage(t, l, l.Start())
	head, err := l.Head(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("head %+v, read %d, lost %v", head, len(envs), report.Lost)
	lost := 0
	for _, r := range report.Lost {
		lost += int(r.To - r.From + 1)
	}
	if len(envs)+lost != int(head.Last) || len(envs) < 10 || len(envs) == len(all) {
		t.Errorf("salvage: got %d envelopes and lost %v, want together %d, and at least 10 but not all envelopes",
			len(envs), report.Lost, head.Last)
	}
	for _, env := range envs {
		if env.Events[0].User != all[env.Seq()-1].Events[0].User {
			t.Errorf("envelope %d: got %+v, want %+v", env.Seq(), env, all[env.Seq()-1])
		}
	}
}

// I6: if the stream has lost envelopes before the cursor, Salvage knows their event ids from its
// caller.
func TestSalvageTakesMissingRepeatsFromCaller(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		once := newFollows(0, 1)
		once[0].EventId = "once"
		appendHistory(t, l, []historyStep{
			{events: once},
			{wait: time.Minute, events: newFollows(1, 2)},
			{wait: time.Minute, events: once},
			{wait: 14 * time.Minute, events: newFollows(2, 3)},
		})
		all := readWholeLog(t, l)
		repeats, err := l.RepeatsAt(testContext(t), all[1].Cursor)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := l.fetchStream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for seq := uint64(1); seq < 3; seq++ {
			for _, after := range []events.Cursor{all[1].Cursor, toArchivalCursor(all[1].Cursor)} {
				var envs []*events.Envelope
				report, err := l.Salvage(testContext(t), after, repeats, func(more []*events.Envelope) error {
					envs = append(envs, more...)
					return nil
				})
				if err != nil || len(envs) != 2 || envs[0].Repeats != 1 || len(envs[1].Events) != 1 || len(report.Lost) > 0 {
					t.Errorf("salvage without the envelopes before %d: got %d envelopes, %+v and error %v, want 2, a repeat in the first and nothing lost",
						seq, len(envs), report, err)
				}
				first, at := &all[0].Events[0], all[2].Cursor.LastTime
				if len(report.Repeats) != 2 || !slices.Contains(report.Repeats, events.Repeat{Key: events.RepeatKey(first), Time: at}) ||
					!slices.Contains(report.Repeats, events.Repeat{Key: events.ContentKey(first), Time: at}) {
					t.Errorf("salvage without the envelopes before %d: got repeats %+v, want those of the first event at %d",
						seq, report.Repeats, at)
				}
			}

			if err := stream.DeleteMsg(testContext(t), seq); err != nil {
				t.Fatal(err)
			}
		}

		other := all[2].Cursor
		other.Checksum++
		if _, err := l.Salvage(testContext(t), other, nil, nil); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("salvage after a cursor of another stream: got error %v, want %v", err, events.ErrRewritten)
		}
	})
}
