package eventlog

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
)

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

// What a stream holds is salvaged as a reader would have read it, also when messages of it are gone.
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
				t.Fatalf("from %d: %+v, %v", seq, report, err)
			}
		}
		stream, err := l.stream(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, seq := range []uint64{1, 2, 12, 20, 21, 30} {
			if err := stream.DeleteMsg(testContext(t), seq); err != nil {
				t.Fatal(err)
			}
		}
		envs, report := mustSalvage(t, l, all[9].Cursor)
		if want := []SeqRange{{12, 12}, {20, 21}, {30, 30}}; !slices.Equal(report.Lost, want) || len(envs) != 16 {
			t.Errorf("%d envelopes, lost %v, want %v", len(envs), report.Lost, want)
		}
		if _, report = mustSalvage(t, l, l.Start()); report.Lost[0] != (SeqRange{1, 2}) {
			t.Errorf("from the start: lost %v", report.Lost)
		}
		full := errors.New("full")
		if _, err := l.Salvage(testContext(t), l.Start(), nil, func([]*events.Envelope) error { return full }); !errors.Is(err, full) {
			t.Errorf("the archive is full: %v", err)
		}
	})
}

// A damaged file of the stream: all that the server can still read of it is salvaged, and the rest named.
func TestSalvageReportsDamageInFile(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	l := mustOpenLog(t, cfg)
	p := newPublisher(t, l, PublisherOptions{})
	for n := range 40 {
		mustPublish(t, p, newFollows(n, n+1))
	}
	all := readWholeLog(t, l)
	closeLog(t, l)
	blocks, err := filepath.Glob(filepath.Join(cfg.Dir, "jetstream", "*", "streams", StreamName, "msgs", "*.blk"))
	if err != nil || len(blocks) == 0 {
		t.Fatalf("blocks %v, %v", blocks, err)
	}
	data, err := os.ReadFile(blocks[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{len(data) / 2, len(data)/2 + 1} {
		data[at] ^= 0x55
	}
	if err := os.WriteFile(blocks[0], data, 0o600); err != nil {
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
		t.Errorf("%d envelopes read, lost %v, the log ends at %d", len(envs), report.Lost, head.Last)
	}
	for _, env := range envs {
		if env.Events[0].User != all[env.Seq()-1].Events[0].User {
			t.Errorf("envelope %d is another", env.Seq())
		}
	}
}

// I6: where the stream has lost what was before the cursor, its event ids are known from the archive.
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
		stream, err := l.stream(testContext(t))
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
					t.Errorf("without what is before %d: %+v, %v", seq, report, err)
				}
				first, at := &all[0].Events[0], all[2].Cursor.LastTime
				if len(report.Repeats) != 2 || !slices.Contains(report.Repeats, events.Repeat{Key: events.RepeatKey(first), Time: at}) ||
					!slices.Contains(report.Repeats, events.Repeat{Key: events.ContentKey(first), Time: at}) {
					t.Errorf("without what is before %d: remembered is %+v", seq, report.Repeats)
				}
			}
			if err := stream.DeleteMsg(testContext(t), seq); err != nil {
				t.Fatal(err)
			}
		}
		other := all[2].Cursor
		other.Checksum++
		if _, err := l.Salvage(testContext(t), other, nil, nil); !errors.Is(err, events.ErrRewritten) {
			t.Errorf("after a cursor of another stream: %v", err)
		}
	})
}
