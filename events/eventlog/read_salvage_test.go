package eventlog

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"

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

// TestSalvageReadsWhatIsLeft checks that Salvage returns the envelopes of a stream as a reader would
// have read them. If messages are gone, it returns the others and lists the lost ones.
func TestSalvageReadsWhatIsLeft(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		l := mustOpenLog(t, Config{Dir: t.TempDir()})
		appendHistory(t, l, drawHistory(30).Example(9))
		all := readWholeLog(t, l)
		repeats, err := l.RepeatsAt(testContext(t), all[29].Cursor)
		if err != nil {
			t.Fatal(err)
		}

		for seq := range all {
			from := l.Start()
			if seq > 0 {
				from = all[seq-1].Cursor
			}
			envs, report := mustSalvage(t, l, from)
			checkSameEnvelopes(t, "salvaged", envs, all, uint64(seq))
			want := SalvageReport{Head: toArchivalCursor(all[29].Cursor), Envelopes: uint64(30 - seq), Repeats: repeats}
			for _, env := range envs {
				want.Events += uint64(len(env.Events))
			}
			if diff := cmp.Diff(want, report, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("report of the salvage from %d (-want +got):\n%s", seq, diff)
			}
		}

		// Some messages are gone.
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

// TestSalvageReportsDamageInFile checks that if a block file of the stream is damaged, Salvage returns
// what the server can still read of it, and lists all other sequences as lost.
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
	middle := len(data) / 2
	data[middle] ^= 0x55
	data[middle+1] ^= 0x55
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
	if len(envs)+lost != int(head.Last) {
		t.Errorf("salvage: got %d envelopes and %d lost, want together %d", len(envs), lost, head.Last)
	}
	if len(envs) < 10 || len(envs) == len(all) {
		t.Errorf("salvaged envelopes: got %d, want at least 10 but not all %d", len(envs), len(all))
	}
	for _, env := range envs {
		if env.Events[0].User != all[env.Seq()-1].Events[0].User {
			t.Errorf("envelope %d: got %+v, want %+v", env.Seq(), env, all[env.Seq()-1])
		}
	}
}

// TestSalvageTakesMissingRepeatsFromCaller tests I6: if the stream has lost envelopes before the
// cursor, Salvage knows their event ids from its caller.
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

		// Envelopes before the cursor are deleted one by one.
		for seq := uint64(1); seq < 3; seq++ {
			for _, after := range []events.Cursor{all[1].Cursor, toArchivalCursor(all[1].Cursor)} {
				var envs []*events.Envelope
				report, err := l.Salvage(testContext(t), after, repeats, func(more []*events.Envelope) error {
					envs = append(envs, more...)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if len(envs) != 2 || len(report.Lost) > 0 {
					t.Fatalf("salvage without the envelopes before %d: got %d envelopes and lost %v, want 2 and none lost",
						seq, len(envs), report.Lost)
				}
				if envs[0].Repeats != 1 || len(envs[1].Events) != 1 {
					t.Errorf("salvage without the envelopes before %d: got %d repeats and then %d events, want one each",
						seq, envs[0].Repeats, len(envs[1].Events))
				}

				// The event was last seen in the third envelope.
				firstEvent := &all[0].Events[0]
				lastSeen := all[2].Cursor.LastTime
				want := []events.Repeat{{Key: events.RepeatKey(firstEvent), Time: lastSeen}, {Key: events.ContentKey(firstEvent), Time: lastSeen}}
				if len(report.Repeats) != 2 || !slices.Contains(report.Repeats, want[0]) || !slices.Contains(report.Repeats, want[1]) {
					t.Errorf("salvage without the envelopes before %d: got repeats %+v, want %+v in any order", seq, report.Repeats, want)
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

// TestSalvageFailsWithoutAnswers checks that no message counts as lost because the server does not
// answer requests for messages, although it answers others. A server that starts does that.
func TestSalvageFailsWithoutAnswers(t *testing.T) {
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1), newFollows(1, 2), newFollows(2, 3))
	all := readWholeLog(t, l)

	// Nobody receives requests for messages.
	if err := ns.GlobalAccount().AddMapping(getMessageSubject, "nobody"); err != nil {
		t.Fatal(err)
	}
	report, err := l.Salvage(testContext(t), l.Start(), nil, func([]*events.Envelope) error { return nil })
	if !errors.Is(err, events.ErrLogUnavailable) || len(report.Lost) > 0 {
		t.Errorf("salvage without answers: got error %v and lost %v, want %v and none lost", err, report.Lost, events.ErrLogUnavailable)
	}
	_, _, err = l.SalvageRepeats(testContext(t), all[2].Cursor)
	if !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("salvage of event ids without answers: got error %v, want %v", err, events.ErrLogUnavailable)
	}

	ns.GlobalAccount().RemoveMapping(getMessageSubject)
	if envs, report := mustSalvage(t, l, l.Start()); len(envs) != 3 || len(report.Lost) > 0 {
		t.Errorf("salvage with answers: got %d envelopes and lost %v, want 3 and none lost", len(envs), report.Lost)
	}
}
